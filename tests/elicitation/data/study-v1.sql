BEGIN TRANSACTION;
CREATE TABLE choicegp_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	at VARCHAR(40) NOT NULL,
	kind VARCHAR(10) NOT NULL,
	participant INTEGER,
	question VARCHAR(100),
	step SMALLINT,
	shown JSON,
	chosen JSON,
	again VARCHAR(100),
	design VARCHAR(40),
	value FLOAT,
	model VARCHAR(100),
	reason TEXT,
	CONSTRAINT one_event_a_step UNIQUE (question, step),
	FOREIGN KEY(participant) REFERENCES choicegp_participants (id)
);
INSERT INTO "choicegp_events" VALUES(1,'2026-11-19T06:24:50.615919+00:00','opened',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(2,'2026-11-19T06:24:50.625885+00:00','joined',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(3,'2026-11-19T06:24:50.629234+00:00','joined',2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(4,'2026-11-19T06:24:50.633749+00:00','asked',1,'cmVbeZeqop59vlh09MIyjA',0,'["pen", "ink"]',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(5,'2026-11-19T06:24:50.643050+00:00','answered',1,'cmVbeZeqop59vlh09MIyjA',1,NULL,'["pen"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(6,'2026-11-19T06:24:50.647718+00:00','asked',1,'WIMjJHrb-wyOziHUM4Q4Fw',0,'["ink", "cap"]',NULL,NULL,'random',NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(7,'2026-11-19T06:24:50.650816+00:00','answered',1,'WIMjJHrb-wyOziHUM4Q4Fw',1,NULL,'["ink", "cap"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(8,'2026-11-19T06:24:50.658011+00:00','undone',1,'WIMjJHrb-wyOziHUM4Q4Fw',2,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(9,'2026-11-19T06:24:50.663819+00:00','asked',1,'ydIkHvFtPA9dZBHB5zTSGA',0,'["ink", "cap"]',NULL,'WIMjJHrb-wyOziHUM4Q4Fw','random',NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(10,'2026-11-19T06:24:50.667560+00:00','asked',2,'CDaSv7FwM1nSdpuE75DXUA',0,'["cap", "pen"]',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(11,'2026-11-19T06:24:50.670838+00:00','answered',2,'CDaSv7FwM1nSdpuE75DXUA',1,NULL,'["cap"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(12,'2026-11-19T06:24:50.675485+00:00','asked',2,'klQZW8CBXZvYP_vYQjJaTw',0,'["cap", "ink"]',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(13,'2026-11-19T06:24:50.678949+00:00','skipped',2,'klQZW8CBXZvYP_vYQjJaTw',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(16,'2026-11-19T06:24:50.693599+00:00','deleted',3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE choicegp_participants (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	token_hash VARCHAR(64),
	name VARCHAR(200),
	state VARCHAR(10) NOT NULL,
	joined VARCHAR(40) NOT NULL,
	panel JSON NOT NULL,
	UNIQUE (token_hash),
	UNIQUE (name)
);
INSERT INTO "choicegp_participants" VALUES(1,'b94cc7d4c51e445382ebb559095a87068ef6e8bda5940a3101bf679c1c893829','Anna','active','2026-11-19T06:24:50.625535+00:00','{"pid": "7"}');
INSERT INTO "choicegp_participants" VALUES(2,'660157d463d652f4acbcd89dc5c462bf5e389c32ea8bf2a3c4bd336824107191',NULL,'active','2026-11-19T06:24:50.629127+00:00','{}');
INSERT INTO "choicegp_participants" VALUES(3,NULL,NULL,'deleted','2026-11-19T06:24:50.681362+00:00','{}');
CREATE TABLE choicegp_schema (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT choicegp_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "choicegp_schema" VALUES('0001');
CREATE TABLE choicegp_study (
	id INTEGER NOT NULL,
	created VARCHAR(40) NOT NULL,
	state VARCHAR(10) NOT NULL,
	owner_hash VARCHAR(64) NOT NULL,
	settings JSON NOT NULL,
	catalogue JSON NOT NULL,
	PRIMARY KEY (id),
	CONSTRAINT one_study CHECK (id = 1)
);
INSERT INTO "choicegp_study" VALUES(1,'2026-11-19T06:24:50.615399+00:00','open','7d1366ad5a9f5d01d9bba8de3623c7007faeb8899ce3d2acc44cc1dd1a621172','{"sets": 3}','{"index": null, "ids": ["pen", "ink", "cap"], "columns": [{"name": "price", "kind": "float64", "values": [1.0, 2.5, 4.0]}, {"name": "colour", "kind": "words", "values": ["red", "blue", "red"]}]}');
CREATE INDEX choicegp_events_of_participant ON choicegp_events (participant, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('choicegp_events',16);
INSERT INTO "sqlite_sequence" VALUES('choicegp_participants',3);
COMMIT;

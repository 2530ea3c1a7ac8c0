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
INSERT INTO "choicegp_events" VALUES(1,'2026-11-19T06:24:52.700564+00:00','opened',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(2,'2026-11-19T06:24:52.710008+00:00','joined',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(3,'2026-11-19T06:24:52.719144+00:00','joined',2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(4,'2026-11-19T06:24:52.725690+00:00','asked',1,'L5RZxOL5JhK1Y6bMJYmp2Q',0,'["pen", "ink"]',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(5,'2026-11-19T06:24:52.735422+00:00','answered',1,'L5RZxOL5JhK1Y6bMJYmp2Q',1,NULL,'["pen"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(6,'2026-11-19T06:24:52.739887+00:00','asked',1,'xgBRFzxLRbCr1dmMFOrNeQ',0,'["ink", "cap"]',NULL,NULL,'random',NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(7,'2026-11-19T06:24:52.748184+00:00','answered',1,'xgBRFzxLRbCr1dmMFOrNeQ',1,NULL,'["ink", "cap"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(8,'2026-11-19T06:24:52.752430+00:00','undone',1,'xgBRFzxLRbCr1dmMFOrNeQ',2,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(9,'2026-11-19T06:24:52.753953+00:00','asked',1,'9hZiY1fZuV22pRp0rAQtVA',0,'["ink", "cap"]',NULL,'xgBRFzxLRbCr1dmMFOrNeQ','random',NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(10,'2026-11-19T06:24:52.767851+00:00','asked',2,'MF-JkDrRLWmHdIfMb7gCwg',0,'["cap", "pen"]',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(11,'2026-11-19T06:24:52.770895+00:00','answered',2,'MF-JkDrRLWmHdIfMb7gCwg',1,NULL,'["cap"]',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(12,'2026-11-19T06:24:52.775530+00:00','asked',2,'xRT39KMb8YjT5PlRRjiVLw',0,'["cap", "ink"]',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(13,'2026-11-19T06:24:52.782386+00:00','skipped',2,'xRT39KMb8YjT5PlRRjiVLw',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "choicegp_events" VALUES(16,'2026-11-19T06:24:52.796866+00:00','deleted',3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE choicegp_jobs (
	kind VARCHAR(10) NOT NULL,
	participant INTEGER NOT NULL,
	version INTEGER NOT NULL,
	due VARCHAR(40) NOT NULL,
	claimed VARCHAR(40),
	worker VARCHAR(100),
	tries SMALLINT NOT NULL,
	PRIMARY KEY (kind, participant)
);
INSERT INTO "choicegp_jobs" VALUES('explain',2,4,'2026-11-19T06:24:52.838949+00:00',NULL,NULL,0);
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
INSERT INTO "choicegp_participants" VALUES(1,'3ecf95f7e938f99a1691ea934853565f14bbb0709436e9ffa924d725f7ba3d40','Anna','active','2026-11-19T06:24:52.709657+00:00','{"pid": "7"}');
INSERT INTO "choicegp_participants" VALUES(2,'e2917314a07eeb31fd6f00354c0fbf61d1ad3b4a6a78f61f55bbd4a3c281bcd9',NULL,'active','2026-11-19T06:24:52.718971+00:00','{}');
INSERT INTO "choicegp_participants" VALUES(3,NULL,NULL,'deleted','2026-11-19T06:24:52.786915+00:00','{}');
CREATE TABLE choicegp_results (
	kind VARCHAR(10) NOT NULL,
	participant INTEGER NOT NULL,
	version INTEGER NOT NULL,
	at VARCHAR(40) NOT NULL,
	content BLOB,
	PRIMARY KEY (kind, participant)
);
INSERT INTO "choicegp_results" VALUES('next',1,3,'2026-11-19T06:24:52.850386+00:00',X'666F756E64');
CREATE TABLE choicegp_schema (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT choicegp_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "choicegp_schema" VALUES('0002');
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
INSERT INTO "choicegp_study" VALUES(1,'2026-11-19T06:24:52.699914+00:00','open','2b9dd5bedcf4ba177600bd453cedf91dcfddb571c1481d9cebd90d24f9141626','{"sets": 3}','{"index": null, "ids": ["pen", "ink", "cap"], "columns": [{"name": "price", "kind": "float64", "values": [1.0, 2.5, 4.0]}, {"name": "colour", "kind": "words", "values": ["red", "blue", "red"]}]}');
CREATE INDEX choicegp_events_of_participant ON choicegp_events (participant, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('choicegp_events',16);
INSERT INTO "sqlite_sequence" VALUES('choicegp_participants',3);
COMMIT;

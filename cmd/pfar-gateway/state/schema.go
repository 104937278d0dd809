package state

// version of the schema (PRAGMA user_version).
const version = 1

// schema of a new file. Times are nanoseconds since 1970, for people; labels are bytes, confidentiality * 16 +
// integrity. Arguments of calls are in no table: what waits for an approval is denied by a restart, so it need not be
// on a disk. What a run of a flow has read is in one until the run is over: without it the run cannot go on.
const schema = additions + `
CREATE TABLE sessions (
	client TEXT NOT NULL,
	handle TEXT NOT NULL,
	label INTEGER NOT NULL,
	connection INTEGER NOT NULL, -- 1: it is of one connection, and ends with it
	created INTEGER NOT NULL,
	used INTEGER NOT NULL,
	reset INTEGER NOT NULL DEFAULT 0, -- when it last was
	reset_by TEXT NOT NULL DEFAULT '',
	frozen TEXT NOT NULL DEFAULT '',  -- why; '': it is not
	denials INTEGER NOT NULL DEFAULT 0, -- in a row
	PRIMARY KEY (client, handle)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_sources (
	client TEXT NOT NULL,
	handle TEXT NOT NULL,
	label INTEGER NOT NULL, -- of the session after it
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	call TEXT NOT NULL,
	at INTEGER NOT NULL,
	PRIMARY KEY (client, handle, label),
	FOREIGN KEY (client, handle) REFERENCES sessions ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE session_servers ( -- what a session has seen of each server
	client TEXT NOT NULL,
	handle TEXT NOT NULL,
	server TEXT NOT NULL, -- '': it is not known which
	label INTEGER NOT NULL,
	PRIMARY KEY (client, handle, server),
	FOREIGN KEY (client, handle) REFERENCES sessions ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE stains (
	server TEXT NOT NULL, -- and behind a blank a place where it could leave what it has taken for others
	label INTEGER NOT NULL, -- of the server after it, and 256 times how secret that in it is which came from elsewhere
	client TEXT NOT NULL,
	handle TEXT NOT NULL,
	tool TEXT NOT NULL,
	call TEXT NOT NULL,
	at INTEGER NOT NULL,
	PRIMARY KEY (server, label)
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals (
	id TEXT PRIMARY KEY,
	binding BLOB NOT NULL, -- SHA-256 of all that it is bound to
	client TEXT NOT NULL,
	session TEXT NOT NULL,
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	asked INTEGER NOT NULL,
	state TEXT NOT NULL, -- pending, approved, used, denied, expired
	reason TEXT NOT NULL DEFAULT '',
	answered INTEGER NOT NULL DEFAULT 0,
	uid INTEGER NOT NULL DEFAULT -1,
	name TEXT NOT NULL DEFAULT '',
	channel TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX approvals_asked ON approvals (asked);
CREATE INDEX approvals_open ON approvals (state) WHERE state IN ('pending', 'approved');

CREATE TABLE rules ( -- what is left of grants, while no gateway runs
	id TEXT PRIMARY KEY,
	client TEXT NOT NULL,
	server TEXT NOT NULL,
	tool TEXT NOT NULL,
	rule TEXT NOT NULL, -- the rest of it, in JSON
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL
) STRICT;

PRAGMA application_id = 0x70666172;
PRAGMA user_version = 1;
`

// additions are tables that a file of an earlier pfar of this version of the schema may lack. An earlier pfar leaves
// them
// alone.
const additions = `
CREATE TABLE IF NOT EXISTS verifications ( -- what the last call showed of a server's secrets
	server TEXT PRIMARY KEY,
	subject TEXT NOT NULL, -- digest of what the server was, and of which secrets it had: of no use to guess them by
	result TEXT NOT NULL,  -- verified, invalid
	tool TEXT NOT NULL,
	words TEXT NOT NULL,
	at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS cleared ( -- stains that the operator has cleared
	server TEXT NOT NULL,
	label INTEGER NOT NULL, -- both as in stains
	at INTEGER NOT NULL, -- the last time; rises with each clearing, whatever the clock says
	PRIMARY KEY (server, label)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS consents ( -- what was decided about plans of flows, by run
	run TEXT PRIMARY KEY,
	yes TEXT NOT NULL, -- consent.Yes, in JSON
	made INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS consent_uses ( -- calls that a yes to a plan has covered
	run TEXT NOT NULL,
	step TEXT NOT NULL,
	call TEXT NOT NULL, -- id in the audit
	at INTEGER NOT NULL,
	PRIMARY KEY (run, step),
	FOREIGN KEY (run) REFERENCES consents ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS flow_files ( -- the labels of files in the folders of flows
	client TEXT NOT NULL,
	path TEXT NOT NULL,
	label INTEGER NOT NULL,
	PRIMARY KEY (client, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS flow_file_marks ( -- by which such a file is known to be as flows have left it
	client TEXT NOT NULL,
	path TEXT NOT NULL,
	marks TEXT NOT NULL, -- inode, size and time of each version that has the label
	PRIMARY KEY (client, path),
	FOREIGN KEY (client, path) REFERENCES flow_files ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS runs ( -- of flows
	id TEXT PRIMARY KEY,
	client TEXT NOT NULL,
	session TEXT NOT NULL,
	proof TEXT NOT NULL, -- how whoever began it has shown that it is the client
	flow TEXT NOT NULL, -- its name
	plan BLOB NOT NULL, -- in JSON; '': the run is over
	state TEXT NOT NULL, -- running, waiting, unknown, done, failed, cancelled
	reason TEXT NOT NULL DEFAULT '', -- why it is so
	approval TEXT NOT NULL DEFAULT '', -- that it waits for
	at TEXT NOT NULL, -- id of the step that it calls now, or next; '': the run is over
	step INTEGER NOT NULL DEFAULT 0, -- the place of that in the plan
	turn INTEGER NOT NULL DEFAULT 0, -- how many calls it has made before
	sent INTEGER NOT NULL DEFAULT 0, -- 1: the call writes, and may be on its way
	asks INTEGER NOT NULL DEFAULT 0, -- how often the call has been answered for, and waited again
	restarts INTEGER NOT NULL DEFAULT 0, -- of the gateway, while it ran at this call
	since INTEGER NOT NULL DEFAULT 0, -- when the call began to wait; 0: it does not
	label INTEGER NOT NULL, -- of all that is in its store
	bytes INTEGER NOT NULL, -- of its plan and its store
	steps INTEGER NOT NULL DEFAULT 0, -- of its trace, those that are kept no more too
	begun INTEGER NOT NULL,
	ended INTEGER NOT NULL DEFAULT 0,
	result BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS runs_open ON runs (client, bytes) WHERE state IN ('running', 'waiting', 'unknown');
CREATE INDEX IF NOT EXISTS runs_over ON runs (client, ended) WHERE state IN ('done', 'failed', 'cancelled');

CREATE TABLE IF NOT EXISTS run_epochs ( -- the epochs of their sessions when they began
	run TEXT PRIMARY KEY,
	epoch INTEGER NOT NULL,
	FOREIGN KEY (run) REFERENCES runs ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS run_values ( -- the stores of runs that are not over
	run TEXT NOT NULL,
	name TEXT NOT NULL,
	value BLOB NOT NULL, -- in JSON
	PRIMARY KEY (run, name),
	FOREIGN KEY (run) REFERENCES runs ON DELETE CASCADE
) STRICT;

CREATE TABLE IF NOT EXISTS run_steps ( -- the traces of runs
	run TEXT NOT NULL,
	n INTEGER NOT NULL, -- from 1
	step BLOB NOT NULL, -- in JSON
	PRIMARY KEY (run, n),
	FOREIGN KEY (run) REFERENCES runs ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
`

package migrate

import "github.com/pfar/pfar/units"

// tests/vm builds a version with another file in place of this one (go build -overlay).

// steps are the migrations: the first one leads from format 1 to 2. There is none yet. A step that has been released
// never changes.
func steps() []Step { return nil }

// own is the migration of this program.
func own(dir string) migration { return migration{dir: dir, steps: steps(), program: units.Version()} }

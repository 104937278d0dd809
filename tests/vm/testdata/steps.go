package migrate

import (
	"io/fs"
	"os"
	"time"

	"github.com/pfar/pfar/units"
)

// TestUpgrade builds a version of pfar with this file in place of units/migrate/steps.go: its state has another format.

// steps changes, adds and removes files of the test, and rewrites all pins and secrets.
func steps() []Step {
	return []Step{func(state fs.FS) (edits []Edit, err error) {
		for _, pattern := range []string{"pins/*.json", "vault/*.age", "trial/changed"} {
			files, err := fs.Glob(state, pattern)
			if err != nil {
				return nil, err
			}
			for _, path := range files {
				b, err := fs.ReadFile(state, path)
				if err != nil {
					return nil, err
				}
				if path == "trial/changed" {
					b = append(b, " and changed"...)
				}
				edits = append(edits, Edit{Path: path, Data: b})
			}
		}
		return append(edits,
			Edit{Path: "trial/new/first", Data: []byte("new")},
			Edit{Path: "trial/gone", Gone: true},
			Edit{Path: "trial/last", Data: []byte("new")},
		), nil
	}}
}

// own waits in the middle, between the first new file and the last, while the test's file says so.
func own(dir string) migration {
	m := migration{dir: dir, steps: steps(), program: units.Version()}
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	m.cut = func() error {
		for there("/run/pfar-vm-hold") && there(m.at("trial/new/first")) && !there(m.at("trial/last")) {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	}
	return m
}

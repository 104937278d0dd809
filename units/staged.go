package units

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// StagedDir is where a unit's own mount namespace has what its user could not reach otherwise, below pfar's run
// directory.
func StagedDir(run string) string { return filepath.Join(run, "staged") }

// Staged is where a source of a bind is then. It says nothing of the source: the name must not collide, and no more.
func Staged(run, source string) string {
	sum := sha256.Sum256([]byte(source))
	return filepath.Join(StagedDir(run), hex.EncodeToString(sum[:16]))
}

// Unseen reports whether a unit sees path only where it is staged: its user cannot reach it, or it lies in one of the
// folders that each unit has of its own (PrivateTmp= of systemd.exec(5)).
func Unseen(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/") || !Reachable(path)
}

// Reachable reports whether any user may enter all directories above path.
func Reachable(path string) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil || st.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

package units

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
)

// LeastSubordinates is what a range has to have: podman(1) and the like take ids from its beginning.
const LeastSubordinates = 4096

// IDRange is a range of subordinate user or group ids (subuid(5)). The zero value has none.
type IDRange struct{ First, Count int }

// Subordinate returns the largest range that the text of /etc/subuid or /etc/subgid gives to a user, by name or by id.
func Subordinate(text []byte, name string, uid int) (best IDRange) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		fields := strings.Split(strings.TrimSpace(s.Text()), ":")
		if len(fields) != 3 || fields[0] != strconv.Itoa(uid) && (name == "" || fields[0] != name) {
			continue
		}
		first, ferr := strconv.ParseUint(fields[1], 10, 31)
		count, cerr := strconv.ParseUint(fields[2], 10, 31)
		if ferr == nil && cerr == nil && first > 0 && int(count) > best.Count {
			best = IDRange{int(first), int(count)}
		}
	}
	return best
}

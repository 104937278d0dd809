package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// stranger is another uid that no account has, and that another run of the tests hardly has.
var stranger = uint32(ordinary - 1 - os.Getpid()%1000)

// strangersHunt looks for the text on stdin in what its user may look at of processes, of files that are younger than
// half an hour and of pfar's sockets, and says where it is; whatever lets itself be connected to is "open". The tests'
// own programs have some of the texts in them, and so has what another run of the tests has in its directories, or left
// there when it was killed. The text is in nobody's arguments.
const strangersHunt = `
umask 077
cd "$DIR"
cat >text
cut -c1-12 text >beginning
find /proc/[0-9]* -maxdepth 1 \( -name cmdline -o -name environ -o -name status -o -name mountinfo \) ! -path "/proc/$$/*" 2>/dev/null >list
find /proc/[0-9]*/fd -type l -xtype f 2>/dev/null >>list
find /dev/shm /run /tmp /var/tmp /var/lib /var/log \( -name 'go-build*' -o -name 'pfar-e2e-*' ! -name "$OURS*" \) -prune -o -type f -cmin -30 -size -32768k ! -path "$DIR/*" ! -name '*.test' ! -name '*_test.go' -print 2>/dev/null >>list
xargs -r -d '\n' -a list grep -laF -f text -- 2>/dev/null | sed 's/^/found /'
for socket in $SOCKETS; do
	code=0
	curl -s --max-time 2 --unix-socket "$socket" http://localhost/mcp >/dev/null || code=$?
	[ $code != 7 ] || continue
	echo "open $socket"
	for path in /mcp /metrics /pins /approvals /sessions; do
		! curl -s --max-time 2 --unix-socket "$socket" "http://localhost$path" |
			grep -qaF -f beginning || echo "found $socket"
	done
done
for path in "" /mcp /mcp/x /metrics; do
	! curl -s --max-time 2 -H 'Accept: application/json, text/event-stream' "http://$ENDPOINT$path" | grep -qaF -f beginning || echo "found endpoint"
done
true
`

// oneHunt lets a stranger hunt alone: what is left about for one to find is not for the others.
var oneHunt sync.Mutex

// strangersFind has another user of the machine look for a secret everywhere, with success where it is left lying
// about, and for a way into pfar's sockets.
func strangersFind(t *testing.T, p *pfar, secret string) {
	t.Helper()
	if os.Getuid() != 0 {
		return // nobody else can be had
	}
	oneHunt.Lock()
	defer oneHunt.Unlock()
	careless := filepath.Join(directory(t, ""), "careless")
	check(t, os.WriteFile(careless, []byte("x "+secret+" y"), 0o644))
	defer os.Remove(careless)
	own := directory(t, "")
	defer os.RemoveAll(own) // the secret is in it, and the next hunt is the same stranger's
	check(t, os.Chown(own, int(stranger), int(stranger)))
	var sockets []string // that a stranger cannot list, but knows
	check(t, filepath.WalkDir(p.run, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type() == fs.ModeSocket {
			sockets = append(sockets, path)
		}
		return nil
	}))
	if len(sockets) < 4 {
		t.Errorf("these are all of pfar's sockets: %q", sockets)
	}
	c := exec.Command("sh", "-c", strangersHunt)
	c.Dir = "/"
	endpoint := strings.TrimSuffix(strings.TrimPrefix(p.last().Endpoint, "http://"), "/mcp")
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "DIR=" + own, "OURS=" + directoryPattern,
		"SOCKETS=" + strings.Join(sockets, " "), "ENDPOINT=" + endpoint}
	c.Stdin = strings.NewReader(secret)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := c.CombinedOutput()
	check(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	if got := slices.Compact(lines); !slices.Equal(got, []string{"found " + careless}) {
		t.Errorf("another user of the machine finds the secret, or a socket that is open, at %q, want %q alone", got, careless)
	}
}

package units

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoCore runs this program again: the limit stays with a process.
func TestNoCore(t *testing.T) {
	const variable = "PFAR_TEST_NO_CORE"
	if os.Getenv(variable) != "" {
		var limit unix.Rlimit
		if err := NoCore(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Cur > noCore || limit.Max > noCore {
			t.Errorf("the limit is %+v, %v", limit, err)
		}
		return
	}
	for _, hard := range []string{"unlimited", "0"} {
		cmd := exec.Command("sh", "-c", "ulimit -c "+hard+` && exec "$0" -test.run=^TestNoCore$`, os.Args[0])
		cmd.Env = append(os.Environ(), variable+"=1")
		if os.Getuid() == 0 { // who is not root cannot raise a limit
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Cloneflags: 0}
			cmd.Args[0], cmd.Dir = "sh", "/"
			file, err := os.Open(os.Args[0])
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			cmd.ExtraFiles = []*os.File{file} // whose path that user may not reach
			cmd.Args[len(cmd.Args)-1] = "/proc/self/fd/3"
		}
		out, err := cmd.CombinedOutput()
		if err != nil && hard == "unlimited" && strings.Contains(string(out), "ulimit") {
			t.Logf("this user may not have cores: %s", out)
			continue
		}
		if err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("with the limit %s: %v, %s", hard, err, out)
		}
	}
}

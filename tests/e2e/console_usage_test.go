package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/processes"
)

// usageOf is what a server costs that has 3n open connections, and what its bridge says of them. text stands wherever
// the server or the bridge can put one.
func usageOf(n int, text string) (usage, bridge string) {
	u := attach.Usage{
		At: time.Now(), Bridges: []string{"notes" + text},
		Cost: &processes.Cost{Memory: 84 << 20, Used: time.Minute, Count: 3},
	}
	b, _ := json.Marshal(u) // strings, numbers and a time
	var messages strings.Builder
	e := json.NewEncoder(&messages)
	for i := range 3 * n {
		_ = e.Encode(monitor.Message{Connection: &monitor.Connection{
			Open: true, Time: time.Unix(int64(i), 0), Path: "redirect", Protocol: "tls" + text, Address: "192.0.2.7:443" + text,
			Host: fmt.Sprintf("h%d.example:443%s", i, text), Sent: 4711, Received: 815,
		}})
	}
	_ = e.Encode(monitor.Message{Synced: true})
	return string(b), messages.String()
}

// bridgeOf returns a connection at whose other end a bridge has said something.
func bridgeOf(name string, said []byte) (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), name)
	go func() {
		defer ours.Close()
		_, _ = ours.Write(said) // who has enough hangs up
	}()
	return os.NewFile(uintptr(pair[1]), name), nil
}

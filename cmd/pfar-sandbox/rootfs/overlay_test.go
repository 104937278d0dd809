package rootfs

import (
	"os"
	"strings"
	"testing"
	"time"
)

// What cannot be refreshed is told, and ends nothing.
func TestRefreshFails(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	tick := make(chan time.Time, 1)
	tick <- time.Time{}
	err = refresh([]*os.File{null}, tick, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "refreshing the server's view of the machine's files: ") {
		t.Errorf("%v", err)
	}
}

// Command pfar-sandbox launches one MCP server inside bubblewrap, hands its stdio to the gateway, and ends when it ends.
//
// It is run as a unit: its plan and the server's credentials come by $CREDENTIALS_DIRECTORY, descriptors by LISTEN_FDS,
// news goes out by NOTIFY_SOCKET, and its exit code tells the runner whether to start it again (package units).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

func main() {
	// The kernel sends PDEATHSIG when the thread that forked ends, not the process (prctl(2)): keep this one.
	runtime.LockOSThread()
	if len(os.Args) > 1 && os.Args[1] == enterArg {
		enter(os.Args[2:]) // does not return
	}
	if len(os.Args) > 1 && os.Args[1] == probeArg {
		took, err := probe()
		if err != nil {
			fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
			os.Exit(1)
		}
		fmt.Printf("%.1f\n", float64(took.Microseconds())/1000)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	code, err := launch(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-sandbox: %v\n", err)
	}
	os.Exit(code)
}

// Command pfar-egress is one server's only way out: it accepts inside the server's network namespace and connects
// outside to what was declared.
//
// It is run as a unit: the listeners come by LISTEN_FDS, the plan by $CREDENTIALS_DIRECTORY, and news goes out by
// NOTIFY_SOCKET (package units). When it has been idle it ends; the next connection has it started again.
//
// With --model it serves the gateway instead: it asks one model, as an inspector or for its words, or sends notices, by
// the same rules for the way out.
// With --refresh it serves no server: it refreshes one OAuth token set and ends, by the same rules for the way out.
// With --login it obtains one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	sdjournal "github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/question"
	"golang.org/x/sys/unix"
)

func main() {
	idle := flag.Duration("idle", 30*time.Second, "end after so long without a connection; 0: never")
	path := flag.String("attach", "", "pfard's `socket`, in a systemd unit")
	refreshes := flag.Bool("refresh", false, "refresh the OAuth token set that pfard hands over, and end; for pfar-refresh@.service")
	logs := flag.Bool("login", false, "obtain the OAuth token set that pfard asks for, and end; for pfar-login@.service")
	asks := flag.Bool("model", false, "ask the plan's model for the gateway, or send notices; for pfar-model@.service")
	flag.Parse()
	// One server's traffic may keep one core busy and no more. It is also the fastest: bytes pass through the kernel, and
	// to wake another thread costs more than what there is to do here.
	runtime.GOMAXPROCS(1)
	// Secrets may lie in this process's memory: nobody gets a core of it, and none of its user's processes looks into it
	// (ptrace(2)).
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	switch {
	case err != nil:
	case *refreshes:
		err = refresh(ctx, *path)
	case *logs:
		err = login(ctx, *path)
	case *asks:
		if err = models(ctx, *path); err != nil {
			question.Pause(ctx)
		}
	default:
		err = run(ctx, *path, *idle)
	}
	sdjournal.Settle()
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-egress: %v\n", err)
		os.Exit(1)
	}
}

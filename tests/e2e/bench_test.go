package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// limited reports how long something took, and fails if the median of it, or the longest, is over its limit; 0 is no
// limit.
func limited(b *testing.B, p50, longest time.Duration, took []time.Duration) {
	b.Helper()
	if len(took) == 0 {
		b.Fatal("nothing was measured")
	}
	slices.Sort(took)
	median, most := took[len(took)/2], took[len(took)-1]
	b.ReportMetric(float64(median.Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(most.Microseconds())/1000, "ms-max")
	b.ReportMetric(0, "ns/op")
	if p50 > 0 && median > p50 {
		b.Errorf("p50 %s of %d, over the limit of %s", median, len(took), p50)
	}
	if longest > 0 && most > longest {
		b.Errorf("%s at most, over the limit of %s", most, longest)
	}
}

// BenchmarkEdit is from the edit of a declaration until pfar begins to act on it: its server stops.
func BenchmarkEdit(b *testing.B) {
	p := start(b, map[string]string{"edited.hcl": echo(b, "-label", "at first")})
	p.awaitRunning("edited")
	var took []time.Duration
	for i := range 15 {
		text := echo(b, "-label", fmt.Sprint("edit ", i))
		mark := p.mark()
		put(b, p.path("edited.hcl")+".tmp", text)
		begin := time.Now()
		check(b, syscall.Rename(p.path("edited.hcl")+".tmp", p.path("edited.hcl")))
		p.awaitFrom(mark, "the old one stopping", soon, func(r control.Report) bool { return server(r, "edited").State != control.Running })
		took = append(took, time.Since(begin))
		p.awaitFrom(mark, "the new one", soon, func(r control.Report) bool {
			s := server(r, "edited")
			return s.State == control.Running && s.Since.After(begin)
		})
	}
	limited(b, 300*time.Millisecond, 0, took)
}

// BenchmarkMistakes is from the start of pfar, with one good declaration beside two hundred bad ones, to the tools of
// the good.
func BenchmarkMistakes(b *testing.B) {
	all := mistakes(b)
	if len(all) < 200 {
		b.Fatalf("%d mistakes", len(all))
	}
	all["good.hcl"] = echo(b)
	var took []time.Duration
	for range 3 {
		p := prepare(b, all)
		begin := time.Now()
		p.up()
		p.awaitRunning("good")
		took = append(took, time.Since(begin))
		p.stop()
	}
	limited(b, 0, 5*time.Second, took)
}

// BenchmarkKill kills the gateway while calls are made.
func BenchmarkKill(b *testing.B) {
	b.Run("served again", func(b *testing.B) {
		served, _ := kills(b)
		limited(b, time.Second, 0, served)
	})
	b.Run("calls that end with an error", func(b *testing.B) {
		_, broken := kills(b)
		limited(b, 0, time.Second, broken)
	})
}

// kills says how soon a call comes through after each end of the gateway, and for how long each call that ended with an
// error had none but errors.
func kills(b *testing.B) (served, broken []time.Duration) {
	p := start(b, map[string]string{"echo.hcl": echo(b)})
	p.awaitRunning("echo")
	watcher := p.client("/mcp/echo")
	call := func(c *client) error {
		_, err := c.call("echo", map[string]any{"message": "x"})
		return err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	end := make(chan struct{})
	for range 4 {
		c := p.client("/mcp/echo")
		all.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if call(c) == nil {
					continue
				}
				first := time.Now()
				err := again(b, func() error { return call(c) })
				mu.Lock()
				broken = append(broken, time.Since(first))
				mu.Unlock()
				if err != nil {
					b.Errorf("a call does not come through: %v", err)
					return
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // sessions that have just begun need not go on after a SIGKILL
	for range 15 {
		g := p.gateway()
		check(b, syscall.Kill(g.pid, syscall.SIGKILL))
		awaitGone(b, soon, []process{g})
		gone := time.Now()
		check(b, again(b, func() error { return call(watcher) }))
		served = append(served, time.Since(gone))
		p.gateway(g)
		time.Sleep(200 * time.Millisecond) // the next kill is not to meet this one
	}
	close(end)
	all.Wait()
	return served, broken
}

// BenchmarkAdd is from the command to its prompt for a token, and from the token to a server that is verified, whose
// own start takes no time.
func BenchmarkAdd(b *testing.B) {
	b.Run("prompt", func(b *testing.B) {
		prompts, _ := adds(b)
		limited(b, 50*time.Millisecond, 0, prompts)
	})
	b.Run("verified", func(b *testing.B) {
		_, verified := adds(b)
		limited(b, time.Second, 0, verified)
	})
}

// benchedService is a known service that is here already.
const benchedService = `service "benched" {
  setup {
    title   = "Benched"
    summary = "Begun and ended"
    command = %q

    secret "BENCHED_TOKEN" {
      key     = "benched_token"
      deliver = "env"
      where   = "Invent one."
    }

    test "label" {
      arguments = {}
    }
  }
}
`

// adds sets a server up at a terminal and removes it, time and again.
func adds(b *testing.B) (prompts, verified []time.Duration) {
	p := prepare(b, nil)
	check(b, os.Mkdir(filepath.Join(p.home, "services.d"), 0o755))
	put(b, filepath.Join(p.home, "services.d/benched.hcl"), fmt.Sprintf(benchedService, program(b, "echo")))
	p.reads("bench", "label")
	p.up()
	for range 15 {
		begin := time.Now()
		s := p.atTerminal("add", "benched", "--name", "bench", "--yes")
		s.await(1, "(not shown):")
		prompts = append(prompts, time.Since(begin))
		begin = time.Now()
		s.reply(1, "(not shown):", "tok-of-the-benchmark")
		s.await(1, "bench: verified with label")
		verified = append(verified, time.Since(begin))
		check(b, s.cmd.Wait())
		p.succeeds("remove", "bench", "--purge", "--yes")
	}
	return prompts, verified
}

// BenchmarkRefreshedToken is from the question to the token endpoint until the API sees the new token.
func BenchmarkRefreshedToken(b *testing.B) {
	if syscall.Getuid() != 0 {
		b.Skip("NOT RUN as an ordinary user: another network takes root")
	}
	requests, wrap := startAPIs(b)
	p := prepare(b, map[string]string{"drive.hcl": `allowed_domains = ["api.github.com"]` + "\n" +
		declare(program(b, "hostile"), nil, `auth = { TOKEN = { secret = "vault:drive", deliver = "broker", hosts = ["api.github.com"] } }`)})
	p.up(wrap...)
	p.await("drive waiting", soon, inState("drive", control.Waiting))
	p.stdin = fmt.Sprintf(`{"access_token":%q,"refresh_token":"RT-0-hunter2hunter2","expires_in":15,"token_url":"https://api.github.com/token","client_id":"id","client_secret":"CS-hunter2"}`, githubToken)
	if _, stderr, code := p.command("vault", "set", "drive", "--oauth"); code != 0 {
		b.Fatal(stderr)
	}
	p.awaitRunning("drive")
	c := p.client("/mcp/drive")
	var asked time.Time
	for end := time.Now().Add(soon); time.Now().Before(end); {
		_, err := c.call("fetch", map[string]any{"method": "GET", "url": "https://api.github.com/echo", "headers": map[string]any{"Authorization": "Bearer $TOKEN"}})
		check(b, err)
		for q := range arrived(requests) {
			switch {
			case q.Path == "/token":
				asked = time.Now()
			case q.Authorization == "Bearer "+githubToken2 && asked.IsZero():
				b.Fatal("the API sees the new token, and nobody has asked for it")
			case q.Authorization == "Bearer "+githubToken2:
				limited(b, time.Second, time.Second, []time.Duration{time.Since(asked)})
				return
			}
		}
	}
	b.Fatal("the API never sees the new token")
}

// arrived are the requests that have arrived.
func arrived(requests <-chan apiCall) func(func(apiCall) bool) {
	return func(yield func(apiCall) bool) {
		for {
			select {
			case q := <-requests:
				if !yield(q) {
					return
				}
			default:
				return
			}
		}
	}
}

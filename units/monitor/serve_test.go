package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// peer reads what Serve writes to a pipe. Pipes have no buffer, so a peer that does not read is as slow as can be.
type peer struct {
	net.Conn
	lines  *json.Decoder
	cancel context.CancelFunc
	done   chan error
}

func serve(t *testing.T, table *Table) *peer {
	t.Helper()
	client, server := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	p := &peer{Conn: client, lines: json.NewDecoder(bufio.NewReader(client)), cancel: cancel, done: make(chan error, 1)}
	go func() { p.done <- table.Serve(ctx, server) }()
	return p
}

func (p *peer) next(t *testing.T) Message {
	t.Helper()
	var m Message
	if err := p.lines.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestADeadWatcherBlocksNobody: it never reads, and the bridge goes on at full speed.
func TestADeadWatcherBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable("")
		dead := serve(t, table)
		began := time.Now()
		for i := range 10 * recent {
			table.Refuse(refusal(fmt.Sprint(i)))
			table.Begin(opened(fmt.Sprint(i)), nil).End(nil)
		}
		if time.Since(began) != 0 {
			t.Error("the bridge waited")
		}
		if err := <-dead.done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d != writeTimeout {
			t.Errorf("given up after %s, want %s", d, writeTimeout)
		}
		dead.Close()
		waitForWatchers(t, table, 0)
	})
}

// TestASlowWatcherLosesWhatIsLongOver and is told how much, and has then the newest state of all that is there.
func TestASlowWatcherLosesWhatIsLongOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable("")
		slow := serve(t, table)
		if m := slow.next(t); !m.Synced {
			t.Fatalf("got %+v", m)
		}
		e := table.Begin(opened("open:443"), nil)
		if m := slow.next(t); m.Connection.Host != "open:443" {
			t.Fatalf("got %+v", m)
		}
		const more = 50
		for i := range recent + more {
			table.Refuse(refusal(fmt.Sprint(i)))
		}
		e.End(nil)
		for i := range recent - 1 {
			if m := slow.next(t); m.Connection == nil || m.Connection.Host != fmt.Sprint(more+1+i) {
				t.Fatalf("message %d: %+v", i, m.Connection)
			}
		}
		if m := slow.next(t); m.Connection == nil || m.Connection.Host != "open:443" || m.Connection.Open {
			t.Errorf("the one that was open: %+v", m.Connection)
		}
		if m := slow.next(t); m.Lost != more+1 {
			t.Errorf("lost %+v, want %d", m, more+1)
		}
		slow.cancel()
		if err := <-slow.done; err != nil {
			t.Error(err)
		}
	})
}

func TestBytesAreCountedOnceASecondWhileSomebodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable("")
		var calls atomic.Int64
		start := time.Now()
		table.Begin(opened("a:443"), func() (int64, int64) { calls.Add(1); return int64(time.Since(start) / time.Second), 0 })
		table.Begin(opened("still:443"), func() (int64, int64) { return 0, 0 })
		p := serve(t, table)
		for range 2 {
			p.next(t)
		}
		if m := p.next(t); !m.Synced {
			t.Fatalf("got %+v", m)
		}
		for i := range int64(5) {
			m := p.next(t)
			if m.Connection == nil || m.Connection.Host != "a:443" || m.Connection.Sent != i+1 || time.Since(start) != time.Duration(i+1)*time.Second {
				t.Fatalf("after %s: %+v", time.Since(start), m.Connection)
			}
		}
		p.Close()
		if err := <-p.done; err != nil {
			t.Errorf("a peer that hung up: %v", err)
		}
		before := calls.Load()
		time.Sleep(time.Hour)
		if calls.Load() != before {
			t.Error("bytes are counted after the last watcher left")
		}
	})
}

// TestServerInALoop: a server that is refused without end costs a batch each pace.
func TestServerInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable("")
		p := serve(t, table)
		p.next(t)
		go func() {
			for range 1000 {
				table.Refuse(refusal("a:443"))
				time.Sleep(time.Millisecond)
			}
		}()
		n, count := 0, 0
		for count < 1000 {
			n, count = n+1, p.next(t).Connection.Count
		}
		if most := int(time.Second/pace) + 2; n > most {
			t.Errorf("%d messages in a second, want at most %d", n, most)
		}
		p.Close()
		<-p.done
	})
}

// TestManyWatchers uses everything at once, for the race detector.
func TestManyWatchers(t *testing.T) {
	table := NewTable("")
	path, stop := bridge(t, table)
	ctx, cancel := context.WithCancel(t.Context())
	var working, watching sync.WaitGroup
	for i := range 8 {
		watching.Go(func() {
			for ctx.Err() == nil {
				n := 0
				err := Follow(ctx, path, func(m Message) error {
					if n++; i%2 == 0 && n > 50 {
						return io.ErrShortBuffer // hangs up in the midst
					}
					return nil
				})
				if err == nil {
					t.Error("Follow ended without a reason")
				}
			}
		})
	}
	dead, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	for i := range 4 {
		working.Go(func() {
			var sent atomic.Int64
			for j := range 2000 {
				e := table.Begin(opened(fmt.Sprint(i, j)), func() (int64, int64) { return sent.Add(1), 0 })
				table.Refuse(refusal(fmt.Sprint(i)))
				go e.End(func(c *Connection) { c.Reason = "y" })
				e.End(func(c *Connection) { c.Reason = "z" })
			}
		})
	}
	working.Wait()
	cancel()
	watching.Wait()
	stop()
	waitForWatchers(t, table, 0)
	if n := len(table.all()); n != recent {
		t.Errorf("%d left", n)
	}
}

func BenchmarkRefuse(b *testing.B) {
	table := NewTable("")
	hosts := [...]string{"a:443", "b:443"}
	b.ReportAllocs()
	for i := range b.N {
		table.Refuse(refusal(hosts[i%2]))
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/processes"
)

// usage is what a server costs now, and its open connections.
type usage struct {
	Rows   rows      `json:"-"` // they change all the time
	Coarse [3]uint64 // what of Rows makes the page out of date
	Open   folded[flow]
	Silent []string // bridges that do not answer
	More   int      // bridges that were not asked
}

// flow is one open connection.
type flow struct {
	Host, Since, Via string
	Traffic          string `json:"-"` // it changes all the time
}

// What a page reads of each bridge. A bridge reads what servers send, and could be taken over.
const (
	bridgeTime = 2 * time.Second
	maxTold    = 10000    // connections that it tells of
	maxHost    = 600      // bytes of a text; a bridge shortens them to less
	maxFlows   = maxFirst // of all bridges, the newest: first at once,
	maxOlder   = maxMore  // and then unfolded
)

// usageNow asks what a server costs; nil: it stands still.
func usageNow(ctx context.Context, s *site, declared control.Server) (*usage, error) {
	v := attach.View{What: attach.ViewUsage, Subject: declared.Name}
	now, err := viewOf[attach.Usage](ctx, s.archive, v, "what the server costs", "pfar top")
	if err != nil || len(now.Bridges) == 0 {
		return nil, err
	}
	u := &usage{More: now.More}
	if now.Cost != nil {
		at := spent{now.At, now.Cost.Used}
		share, known := s.runs.share(declared.Name, at)
		when := ""
		if passed := at.at.Sub(declared.Since); !known {
			share, known, when = processes.Share(at.used, passed), passed >= minApart, ", on average since it is up"
		}
		u.measure(*now.Cost, share, known, when)
	}
	var all flows
	for i, instance := range now.Bridges {
		if i >= attach.MaxBridges {
			break
		}
		if all.ask(ctx, s.archive, instance) != nil {
			u.Silent = append(u.Silent, visible.Reveal(instance))
		}
	}
	for i := len(all.newest) - 1; i >= 0; i-- {
		u.Open.add(func() flow { return all.newest[i] })
	}
	u.Open.Left += all.left
	return u, nil
}

// measure puts a cost into words. share is how many processors were busy, if that is known, and when says since when.
func (u *usage) measure(c processes.Cost, share float64, known bool, when string) {
	percent := min(max(100*share, 0), 1e6)
	cpu := "not measured yet"
	if known {
		cpu = fmt.Sprintf("%.0f%% of one processor%s", percent, when)
	}
	u.Rows.add("memory", visible.Size(int64(min(c.Memory, math.MaxInt64))))
	u.Rows.add("CPU", cpu)
	u.Rows.add("processes", fmt.Sprint(c.Count))
	u.Coarse = [3]uint64{c.Memory >> 24, uint64(percent) / 25, uint64(max(c.Count, 0))}
}

// flows are the newest open connections, oldest first, and how many there are beside these.
type flows struct {
	newest []flow
	left   int
}

var (
	errTold    = errors.New("that is all")
	errTooMany = errors.New("the bridge shows too many connections")
)

// ask adds the open connections of an instance.
func (f *flows) ask(ctx context.Context, a *archive, instance string) error {
	conn, err := a.bridge(ctx, instance)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, bridgeTime, errors.New("the bridge does not answer"))
	defer cancel()
	told := 0
	err = monitor.Read(ctx, conn, func(m monitor.Message) error {
		told++
		switch c := m.Connection; {
		case m.Synced:
			return errTold
		case told > maxTold:
			return errTooMany
		case c != nil && c.Open:
			f.add(*c)
		}
		return nil
	})
	if errors.Is(err, errTold) {
		return nil
	}
	return err
}

func (f *flows) add(c monitor.Connection) {
	f.newest = append(f.newest, flow{
		Host: brief(c.Host), Since: moment(c.Time), Via: brief(c.Via() + " to " + c.Address),
		Traffic: "sent " + visible.Size(c.Sent) + ", received " + visible.Size(c.Received),
	})
	if len(f.newest) > maxFlows+maxOlder {
		f.newest, f.left = f.newest[1:], f.left+1
	}
}

// brief is a text of a bridge, made visible and not too long.
func brief(text string) string {
	if len(text) > maxHost {
		text = strings.ToValidUTF8(text[:maxHost], "") + "..."
	}
	return visible.Reveal(text)
}

// bridge returns a connection to the bridge of an instance, which pfard makes.
func (a *archive) bridge(ctx context.Context, instance string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	unread := func(why string) error { return &ask.Refusal{Reason: "no bridge: " + visible.Reveal(why)} }
	done, err := a.turn(ctx, unread)
	if err != nil {
		return nil, err
	}
	defer done()
	asks := func(q attach.Question) error {
		return a.asksView(attach.View{Question: q, What: attach.ViewBridge, Subject: instance})
	}
	got, err := a.fetch(ctx, asks, unread)
	if err != nil {
		return nil, err
	}
	defer attach.CloseAll(got.files)
	if len(got.files) != 1 {
		return nil, unread("pfard sent no connection")
	}
	return net.FileConn(got.files[0])
}

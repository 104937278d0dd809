package desk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// pfard has one set-up, whose states are events.
type pfard struct {
	mu     sync.Mutex
	events []control.Flow
	more   chan struct{}
	given  []string
	hangs  bool // no request is answered
	begun  []control.SetUp
	refuse error          // of an answer
	then   []control.Flow // what comes of an answer, all at once
}

// put appends events. Called with p.mu held.
func (p *pfard) put(events ...control.Flow) {
	p.events = append(p.events, events...)
	close(p.more)
	p.more = make(chan struct{})
}

func (p *pfard) serve(ctx context.Context, _ control.Peer, r control.Request, send func(control.Response) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	tell := func(f control.Flow) error {
		return send(control.Response{Declarations: control.Declarations{Flow: &f}})
	}
	switch {
	case p.hangs:
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		return nil
	case r.Verb == control.Supply && p.refuse != nil:
		return p.refuse
	case r.Verb == control.Supply:
		p.given = append(p.given, r.Answer.Chat+" "+r.Answer.ID+" "+r.Answer.Key+" "+r.Secret)
		p.put(p.then...)
		return tell(p.events[len(p.events)-1])
	case r.SetUp.Server != "":
		p.begun = append(p.begun, *r.SetUp)
		p.put(p.then...)
	}
	at := max(0, len(p.events)-1)
	if r.SetUp.Server != "" {
		at = len(p.events) - len(p.then)
	} else if len(p.events) == 0 || !r.SetUp.Lately || r.SetUp.Chat != "home" {
		return fmt.Errorf("%w of uid 0", control.ErrNoFlow)
	}
	for {
		for ; at < len(p.events); at++ {
			if err := tell(p.events[at]); err != nil || p.events[at].Over() {
				return err
			}
		}
		more := p.more
		p.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// newSetups are set-ups of a pfard with these events.
func newSetups(t *testing.T, events ...control.Flow) (*Setups, *pfard) {
	t.Helper()
	dir, err := os.MkdirTemp("", "desk") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	p := &pfard{events: events, more: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); control.Serve(ctx, l, p.serve) }()
	t.Cleanup(func() { stop(); l.Close(); <-ended })
	return &Setups{Control: control.Client{Path: path}, Chat: "home"}, p
}

func at(state control.FlowState, attempts int, wants string) control.Flow {
	f := control.Flow{ID: "f1", Server: "notion", State: state, Attempts: attempts}
	if wants != "" {
		f.Wants = &control.Wanted{Key: wants}
	}
	return f
}

// TestWaiting: a set-up counts while it is under way, and when pfard tells its end. If pfard does not say, that is an
// error, not that there is none.
func TestWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		events []control.Flow
		is     bool
	}{
		"none":         {nil, false},
		"it has ended": {[]control.Flow{at(control.FlowComplete, 0, "")}, true},
		"it starts":    {[]control.Flow{at(control.FlowSpawning, 0, "")}, true},
		"it verifies":  {[]control.Flow{at(control.FlowVerifying, 0, "")}, true},
		"it waits":     {[]control.Flow{at(control.AwaitingCredential, 0, "k")}, true},
		"refused":      {[]control.Flow{at(control.CredentialRefused, 1, "k")}, true},
	} {
		s, _ := newSetups(t, c.events...)
		if now, err := s.Waiting(t.Context()); err != nil || (now != nil) != c.is || c.is && now.State != c.events[0].State {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
	s := &Setups{Control: control.Client{Path: filepath.Join(t.TempDir(), "none")}}
	if now, err := s.Waiting(t.Context()); !errors.Is(err, control.ErrNotRunning) || now != nil {
		t.Errorf("without pfard: %+v, %v", now, err)
	}
}

// TestAnswer: After has the state that comes of an answer, also if the set-up has ended by the time that Answer
// returns.
func TestAnswer(t *testing.T) {
	asked, another := at(control.AwaitingCredential, 0, "k"), at(control.AwaitingCredential, 0, "k2")
	failed, done := at(control.FlowFailed, 0, ""), at(control.FlowComplete, 0, "")
	refused := at(control.CredentialRefused, 1, "k")
	list := func(f ...control.Flow) []control.Flow { return f }
	for name, c := range map[string]struct {
		then []control.Flow
		want control.Flow
	}{
		"it ends at once":   {list(failed), failed},
		"it is complete":    {list(at(control.FlowSpawning, 0, ""), done), done},
		"another is wanted": {list(another), another},
		"it is refused":     {list(refused), refused},
	} {
		s, p := newSetups(t, asked)
		p.then = c.then
		if err := s.Answer(t.Context(), asked, "secret"); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		now, err := s.After(t.Context(), asked)
		if err != nil || now.State != c.want.State || now.Attempts != c.want.Attempts ||
			(now.Wants == nil) != (c.want.Wants == nil) || !slices.Equal(p.given, []string{"home f1 k secret"}) {
			t.Errorf("%s: %+v, %v, given %q", name, now, err, p.given)
		}
	}
}

// TestAnswerFails: what is not taken leaves nothing to wait for.
func TestAnswerFails(t *testing.T) {
	asked := at(control.AwaitingCredential, 0, "k")
	s, p := newSetups(t, asked)
	p.refuse = errors.New("the disk is full")
	if err := s.Answer(t.Context(), asked, "secret"); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("not stored: %v", err)
	}
	if _, err := s.After(t.Context(), asked); err == nil {
		t.Error("After waits for an answer that was not taken")
	}
	if err := s.Answer(t.Context(), at(control.FlowSpawning, 0, ""), "secret"); err == nil {
		t.Error("a set-up that waits for nothing is answered")
	}
	s, p = newSetups(t)
	p.refuse = fmt.Errorf("%w: \"f1\"", control.ErrNoFlow)
	if err := s.Answer(t.Context(), asked, "secret"); !errors.Is(err, control.ErrNoFlow) {
		t.Errorf("a set-up that has ended: %v", err)
	}
}

// TestBegin: a service is set up under its own name, unless Check has a reason against it.
func TestBegin(t *testing.T) {
	s, p := newSetups(t)
	s.Check = func(service string) error {
		if service == "slack" {
			return errors.New("slack needs more")
		}
		return nil
	}
	if _, err := s.Begin(t.Context(), "slack"); err == nil || err.Error() != "slack needs more" || len(p.begun) > 0 {
		t.Errorf("%v, begun %+v", err, p.begun)
	}
	p.then = []control.Flow{at(control.FlowStart, 0, ""), at(control.AwaitingCredential, 0, "k")}
	now, err := s.Begin(t.Context(), "notion")
	if err != nil || now.Wants == nil || len(p.begun) != 1 ||
		p.begun[0].Server != "notion" || p.begun[0].Service != "notion" || p.begun[0].Chat != "home" {
		t.Errorf("%+v, %v, begun %+v", now, err, p.begun)
	}
}

// TestHangs: a pfard that does not answer costs a bounded time, and no secret counts as stored.
func TestHangs(t *testing.T) {
	s, p := newSetups(t)
	s.Limit, p.hangs = time.Millisecond, true
	const late = "pfard has not answered within 1ms"
	if now, err := s.Waiting(t.Context()); err == nil || !strings.Contains(err.Error(), late) || now != nil {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := s.Begin(t.Context(), "notion"); err == nil || !strings.Contains(err.Error(), late) {
		t.Errorf("begin: %v", err)
	}
	err := s.Answer(t.Context(), at(control.AwaitingCredential, 0, "k"), "secret")
	if err == nil || !strings.Contains(err.Error(), late) {
		t.Errorf("answer: %v", err)
	}
}

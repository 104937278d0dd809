package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

// screenCall is a call as the screen has it. The digest stays the one that was shown.
type screenCall struct {
	waitingCall
	until time.Time // it expires
}

// approvalsScreen shows the calls that wait, and answers them by keys. A key acts on the page that is open, which shows
// its calls whole and changes only by keys: no call that arrives or ends puts another one under the hand.
type approvalsScreen struct {
	approvalsVerb
	ctx           context.Context
	events        <-chan tea.Msg
	calls         []*screenCall // that wait, the oldest first; then those that are over, the latest first
	back          cameBack
	chosen        string    // key, in the list
	page          *callPage // nil: the list
	sure          *sureness // nil: nothing is asked
	note          string
	width, height int
	failed        error
}

// sureness is a question, and what a yes does.
type sureness struct {
	question string
	act      tea.Cmd
}

// What the screen is told, beside keys.
type (
	callEvent  struct{ operator.Event }
	streamLost struct{ error } // the gateway hung up, and is asked again
	streamOver struct{ error } // it is not
	answerSent struct{ note string }
	secondOver struct{}
)

// interactive runs the screen. That the gateway cannot be reached at the start is an error, as for the list.
func (c approvalsVerb) interactive(ctx context.Context) error {
	var all []waitingCall
	if err := c.askOperator(ctx, http.MethodGet, "/approvals", nil, &all); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan tea.Msg)
	send := func(m tea.Msg) error {
		select {
		case events <- m:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := c.follow(ctx, func(e *operator.Event) error { return send(callEvent{*e}) }, func(err error, _ time.Duration) {
			send(streamLost{err})
		})
		send(streamOver{err})
	}()
	m := &approvalsScreen{approvalsVerb: c, ctx: ctx, events: events, width: 80, height: 24}
	err := c.show(ctx, m)
	cancel()
	<-ended
	return cmp.Or(err, m.failed)
}

func (m *approvalsScreen) Init() tea.Cmd {
	return tea.Batch(m.next, second(), m.back.lookAround(m.ctx, m.pfar))
}

// next waits for what the gateway tells.
func (m *approvalsScreen) next() tea.Msg {
	select {
	case e := <-m.events:
		return e
	case <-m.ctx.Done():
		return nil
	}
}

// second has the time that is left counted down.
func second() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return secondOver{} }) }

func (m *approvalsScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case callEvent:
		m.happened(msg.Event)
		return m, m.next
	case streamLost:
		m.note = msg.Error() + "; asking again"
		m.end(func(*screenCall) bool { return true }, "lost with the connection")
		return m, m.next
	case streamOver:
		m.failed = msg.error
		return m, tea.Quit
	case answerSent:
		m.note = msg.note
		m.back.asked = time.Time{} // a session that was reset is silent no more
		return m, m.back.lookAround(m.ctx, m.pfar)
	case sessionsSeen:
		m.back.seen(msg)
		m.choose()
	case secondOver:
		m.end(func(c *screenCall) bool { return !m.now().Before(c.until) }, "")
		return m, tea.Batch(second(), m.back.lookAround(m.ctx, m.pfar))
	case tea.KeyPressMsg:
		return m, m.pressed(msg.String())
	}
	return m, nil
}

// keptCalls is how many calls that are over the list has.
const keptCalls = 20

// happened takes in what has become of a call.
func (m *approvalsScreen) happened(e operator.Event) {
	i := slices.IndexFunc(m.calls, func(c *screenCall) bool { return c.ID == e.Approval.ID })
	if i < 0 {
		m.calls = append(m.calls, &screenCall{})
		i = len(m.calls) - 1
	}
	left := time.Duration(e.Approval.Left) * time.Second
	*m.calls[i] = screenCall{waitingCall{e.Approval}, m.now().Add(left)}
	m.sort()
}

// end marks calls that wait no longer, though nobody said so.
func (m *approvalsScreen) end(over func(*screenCall) bool, reason string) {
	for _, c := range m.calls {
		if c.State == operator.Pending && over(c) {
			c.State, c.Reason = operator.Expired, reason
		}
	}
	m.sort()
}

func (m *approvalsScreen) sort() {
	slices.SortStableFunc(m.calls, func(a, b *screenCall) int {
		waits := func(c *screenCall) bool { return c.State == operator.Pending }
		switch {
		case waits(a) && waits(b):
			return a.Asked.Compare(b.Asked)
		case waits(a):
			return -1
		case waits(b):
			return 1
		}
		return b.Asked.Compare(a.Asked)
	})
	m.calls = m.calls[:min(len(m.calls), len(m.waiting())+keptCalls)]
	m.choose()
}

// listLine is a line of the list: a call, or a session.
type listLine struct {
	key     string // by which it is chosen
	session string // that it is about, CLIENT/HANDLE
	call    *screenCall
	silent  *operator.Session
}

// list is what the screen lists: the calls, and if none waits, before them the sessions whose clients came back.
func (m *approvalsScreen) list() (all []listLine) {
	if len(m.waiting()) == 0 {
		for i := range m.back.sessions {
			s := &m.back.sessions[i]
			all = append(all, listLine{key: "session " + nameOf(*s), session: nameOf(*s), silent: s})
		}
	}
	for _, c := range m.calls {
		all = append(all, listLine{key: c.ID, session: c.Client + "/" + c.Session, call: c})
	}
	return all
}

// choose chooses the first line if the one that was chosen is no more.
func (m *approvalsScreen) choose() {
	all := m.list()
	if len(all) > 0 && !slices.ContainsFunc(all, func(l listLine) bool { return l.key == m.chosen }) {
		m.chosen = all[0].key
	}
}

// waiting are the calls that can be answered.
func (m *approvalsScreen) waiting() []*screenCall {
	n := slices.IndexFunc(m.calls, func(c *screenCall) bool { return c.State != operator.Pending })
	if n < 0 {
		n = len(m.calls)
	}
	return m.calls[:n]
}

// call is one by its id, nil if the screen has it no more.
func (m *approvalsScreen) call(id string) *screenCall {
	if i := slices.IndexFunc(m.calls, func(c *screenCall) bool { return c.ID == id }); i >= 0 {
		return m.calls[i]
	}
	return nil
}

// pressed acts on a key. What is pasted is no key.
func (m *approvalsScreen) pressed(key string) tea.Cmd {
	asked := m.sure
	m.sure, m.note = nil, ""
	switch {
	case key == "ctrl+c" || key == "ctrl+d" || key == "q" && asked == nil:
		return tea.Quit
	case asked != nil && key == "y":
		m.page = nil
		return asked.act
	case asked != nil:
		m.note = "not done"
		return nil
	case m.page != nil:
		return m.onPage(key)
	}
	m.inList(key)
	return nil
}

// inList moves through the list, opens pages, and makes the session of the chosen line a clean one.
func (m *approvalsScreen) inList(key string) {
	all := m.list()
	at := max(0, slices.IndexFunc(all, func(l listLine) bool { return l.key == m.chosen }))
	if len(all) == 0 {
		return
	}
	switch key {
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "n":
		m.turn()
		return
	case "c":
		m.clean(all[at].session)
		return
	case "enter", "right", "space":
		if call := all[at].call; call != nil {
			m.open(call)
		}
		return
	}
	m.chosen = all[min(max(at, 0), len(all)-1)].key
}

// turn opens the next call that waits.
func (m *approvalsScreen) turn() {
	list := m.waiting()
	if len(list) == 0 {
		m.page, m.note = nil, "no call waits"
		return
	}
	at := slices.IndexFunc(list, func(c *screenCall) bool { return c.ID == m.chosen })
	if at >= 0 && m.page != nil || at < 0 {
		at = (at + 1) % len(list)
	}
	m.open(list[at])
}

func (m *approvalsScreen) open(calls ...*screenCall) {
	m.page = &callPage{}
	for _, c := range calls {
		m.page.calls = append(m.page.calls, c.waitingCall)
	}
	m.chosen = calls[0].ID
}

// alike opens all calls like the one that is open. One that is asked about because private data and strangers' text
// have met, or of which an inspector warns, is answered alone.
func (m *approvalsScreen) alike() {
	first := m.page.calls[0]
	plain := func(w *waitingCall) bool {
		return w.State == operator.Pending && !w.Decision.Once && len(w.Findings) == 0
	}
	var list []*screenCall
	for _, c := range m.waiting() {
		if c.alike() == first.alike() && plain(&c.waitingCall) {
			list = append(list, c)
		}
	}
	if len(list) < 2 || !plain(&first) {
		m.note = "no other call is like this one"
		return
	}
	m.open(list...)
}

// onPage scrolls and answers.
func (m *approvalsScreen) onPage(key string) tea.Cmd {
	p, rows := m.page, m.rows()
	p.lay(m.width, rows)
	switch key {
	case "esc", "left", "backspace":
		m.page = nil
	case "up", "k":
		p.scroll(-1, rows)
	case "down", "j":
		p.scroll(1, rows)
	case "pgup", "b":
		p.scroll(-rows, rows)
	case "pgdown", "space":
		p.scroll(rows, rows)
	case "home":
		p.scroll(-len(p.lines), rows)
	case "n":
		m.turn()
	case "l":
		m.alike()
	case "c":
		first := m.page.calls[0]
		m.clean(first.Client + "/" + first.Session)
	case "a":
		return m.approve(nil)
	case "g":
		return m.approve(&operator.GrantTerms{})
	case "r":
		return m.approve(&operator.GrantTerms{Public: true})
	case "d":
		open := m.unanswered()
		if len(open) > 0 {
			m.page = nil
		}
		return m.send(open, "deny", map[string]any{"reason": ""})
	}
	return nil
}

// clean asks whether a session is to be a clean one, for a new task. Its calls then need new approvals.
func (m *approvalsScreen) clean(name string) {
	path, err := sessionPath(name)
	if err != nil {
		m.note = escape(err.Error(), oneLine)
		return
	}
	m.sure = &sureness{fmt.Sprintf(wording.ResetQuestion+" y", name), func() tea.Msg {
		var answer map[string]string
		if err := m.askOperator(m.ctx, http.MethodPost, path+"/reset", struct{}{}, &answer); err != nil {
			return answerSent{escape(err.Error(), oneLine)}
		}
		return answerSent{escape(answer["result"], oneLine) + " " + name}
	}}
}

// unanswered are the calls of the page that still wait.
func (m *approvalsScreen) unanswered() (open []waitingCall) {
	state := operator.Expired
	for _, w := range m.page.calls {
		if c := m.call(w.ID); c != nil {
			if state = c.State; state == operator.Pending {
				open = append(open, w)
			}
		}
	}
	if len(open) == 0 {
		m.note = "already " + state.String()
	}
	return open
}

// approve lets the calls of the page run, each once, after all of the page has been on the screen. A grant, and more
// than one call, take a second key.
func (m *approvalsScreen) approve(grant *operator.GrantTerms) tea.Cmd {
	open := m.unanswered()
	if len(open) == 0 {
		return nil
	}
	if why := m.page.unread(m.width, m.rows()); why != "" {
		m.note = why
		return nil
	}
	for _, w := range open {
		if err := w.approvable(""); err != nil {
			m.note = fmt.Sprintf("%v: pfar approvals show %s >call.txt", err, w.ID)
			return nil
		}
	}
	first, body := open[0], map[string]any{}
	name := cut(visible.Reveal(first.what()), 40)
	if grant != nil {
		offer := slices.IndexFunc(first.Grants, func(o operator.GrantOffer) bool { return o.Public == grant.Public })
		switch {
		case offer < 0 || len(open) > 1:
			m.note = "no grant: open one call that waits"
			return nil
		case first.Grants[offer].Why != "":
			m.note = "no grant: " + visible.Reveal(first.Grants[offer].Why)
			return nil
		}
		*grant = first.Grants[offer].GrantTerms
		words := grantWords(*grant, first.Session)
		body["grant"] = grant
		m.sure = &sureness{fmt.Sprintf("Let %s call %s once%s? y", first.Client, name, words), m.send(open, "approve", body)}
		return nil
	}
	act := m.send(open, "approve", body)
	if len(open) > 1 {
		m.sure = &sureness{fmt.Sprintf("Let %s run these %d calls of %s, once each? y", first.Client, len(open), name), act}
		return nil
	}
	m.page = nil
	return act
}

// send answers calls as they were shown.
func (m *approvalsScreen) send(calls []waitingCall, verb string, body map[string]any) tea.Cmd {
	if len(calls) == 0 {
		return nil
	}
	return func() tea.Msg {
		var results []string
		for _, w := range calls {
			if verb == "approve" {
				body["digest"] = w.Digest
			}
			var answer map[string]string
			path, err := approvalPath("/approvals/", w.ID)
			if err = errors.Join(err, m.askOperator(m.ctx, http.MethodPost, path+"/"+verb, body, &answer)); err != nil {
				return answerSent{escape(err.Error(), oneLine)}
			}
			results = append(results, answer["result"])
		}
		result := escape(results[0], oneLine)
		if n := len(results); n > 1 {
			result += fmt.Sprintf(", %d calls", n)
		}
		return answerSent{strings.TrimSpace(result)}
	}
}

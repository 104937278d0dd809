package soak

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// outcome is what a call came to. The list is closed.
type outcome string

const (
	answered    outcome = "answered"
	unavailable outcome = "unavailable"
	busy        outcome = "busy"
	full        outcome = "no more sessions"
	timedOut    outcome = "timed out"
	cancelled   outcome = "cancelled"
	interrupted outcome = "interrupted"
	unknown     outcome = "unknown tool or server"
	lost        outcome = "session lost"
	transport   outcome = "connection lost"
	hungUp      outcome = "hung up by ourselves"
	unrecorded  outcome = "not recorded, not done"
	wrong       outcome = "wrong"
)

// notRecorded is how a gateway refuses a call that ends before there is a file to record it in, or after.
const notRecorded = "has not run: the record of the call could not be opened, " +
	"and pfar does nothing that it cannot record"

// failure is an error as a client sees it.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// named are the errors that a call may end with: the code, the text, and what that is. SERVER stands for the name of
// the server that was called, as it is quoted.
var named = []struct {
	code    int
	text    *regexp.Regexp
	outcome outcome
}{
	{-32010, regexp.MustCompile(`^server SERVER (went away: |is not running since )`), unavailable},
	{-32010, regexp.MustCompile(`^server SERVER: the server does not read its stdin`), unavailable},
	{-32010, regexp.MustCompile(`^starting a process of SERVER for this session: `), unavailable},
	{-32011, regexp.MustCompile(`^server SERVER is busy: `), busy},
	{-32011, regexp.MustCompile(fmt.Sprintf(`^server SERVER has %d processes of single sessions already, and its declaration allows no more: end another session, or raise sessions_max$`, ownSessions)), full},
	{-32011, regexp.MustCompile(fmt.Sprintf(`^starting a process of SERVER for this session: .*: SERVER has %d sessions with a process of their own \(sessions_max in `, ownSessions)), full},
	{-32800, regexp.MustCompile(`^server SERVER did not answer tools/(call|list) within `), timedOut},
	{-32800, regexp.MustCompile(`^server SERVER did not get to the call within `), timedOut},
	{-32800, regexp.MustCompile(`^the request was given up: the client cancelled it`), cancelled},
	{-32800, regexp.MustCompile(`^the request was given up: `), interrupted},
	{-32602, regexp.MustCompile(`^unknown tool "`), unknown},
	{-32600, regexp.MustCompile(`^there is no server of this name`), unknown},
	{-32013, regexp.MustCompile(`^there is no server of this name`), unknown},
	{-32600, regexp.MustCompile(`^there is no such session`), lost},
	// What a bridge says in the gateway's stead.
	{-32603, regexp.MustCompile(`^pfar: .*(EOF|connection reset|broken pipe|connection refused|is not running|before it was complete|closed)`), transport},
}

// judgeError finds the name of an error; wrong is one that has none.
func judgeError(e failure, server string) outcome {
	text := strings.ReplaceAll(e.Message, strconv.Quote(server), "SERVER")
	for _, n := range named {
		if e.Code == n.code && n.text.MatchString(text) {
			return n.outcome
		}
	}
	return wrong
}

// claim is a failed call that needs a reason: that the server was away then, or the gateway. They are looked at in the
// end, when all reports have come, and those of the same seconds are one.
type claim struct {
	outcome  outcome
	server   string
	from, to time.Time
}

// tally counts what calls came to.
type tally struct {
	mu       sync.Mutex
	counts   map[outcome]int
	claims   map[claim]string
	wrongs   []string
	violated map[string]int    // how often, by what it is but for names and numbers
	owners   map[string]string // sessions, by the process that is theirs alone
}

func newTally() *tally {
	return &tally{counts: map[outcome]int{}, claims: map[claim]string{}, violated: map[string]int{}, owners: map[string]string{}}
}

// belongs notes that a process has answered a session that has it to itself.
func (t *tally) belongs(process, session string) {
	t.mu.Lock()
	before, ok := t.owners[process]
	t.owners[process] = session
	t.mu.Unlock()
	if ok && before != session {
		t.violation("process %s answers session %s, and is that of session %s", process, session, before)
	}
}

// add counts in a call that began then and ends now. What its caller did is the reason of some outcomes; others need
// one from outside. The text is for whoever has to find out.
func (t *tally) add(o outcome, r request, began time.Time, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[o]++
	switch {
	case o == answered, o == hungUp, o == wrong,
		o == cancelled && r.cancel > 0, o == busy && r.server.crowded, o == full && r.server.own,
		o == timedOut && (r.server.crowded || r.server.late && time.Duration(r.wait)*time.Millisecond > lateTimeout):
		return
	}
	t.claims[claim{o, r.server.name, began.Truncate(time.Second), time.Now().Truncate(time.Second).Add(time.Second)}] = text
}

// particular is what differs between violations of one kind.
var particular = regexp.MustCompile(`"[^"]*"|\bk[a-z2-7]{4}-[a-z-]+[a-z/-]*|[0-9]+`)

// violation notes what must never happen. Of each kind the first are shown, so that a frequent one hides no rare one.
func (t *tally) violation(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most, kinds = 8, 100
	text := fmt.Sprintf(format, args...)
	kind := particular.ReplaceAllString(text[:min(len(text), 300)], "_")
	if t.violated[kind]++; t.violated[kind] <= most && len(t.violated) <= kinds {
		t.wrongs = append(t.wrongs, time.Now().Format("15:04:05.000 ")+text)
		fmt.Println(t.wrongs[len(t.wrongs)-1]) // also if the test never ends
	}
}

// enough reports whether so much has been tried that it shows something. A violation is enough.
func (t *tally) enough() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.wrongs) > 0 {
		return true
	}
	total := 0
	for _, n := range t.counts {
		total += n
	}
	return t.counts[answered] >= total/4 && t.counts[timedOut] > 0 && len(t.owners) >= 4
}

// String counts what became of the calls.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%v, %d sessions' own processes", t.counts, len(t.owners))
}

// judge looks for the reason of every failed call, and reports.
func (t *tally) judge(tt *testing.T, p *pfar) {
	tt.Helper()
	for c, text := range t.claims {
		reason := false
		switch c.outcome {
		case unavailable, unknown:
			reason = p.away(c.server, c.from, c.to)
		case transport, lost, interrupted:
			reason = p.gatewayKilled(c.from, c.to)
		case unrecorded: // the next gateway has no file until pfard has opened one
			reason = p.gatewayKilled(c.from.Add(-recovery), c.to)
		}
		if !reason {
			t.violation("%s: a call to %s from %s to %s, with no reason: %s", c.outcome, c.server, c.from.Format("15:04:05"), c.to.Format("15:04:05"), text)
		}
	}
	total := 0
	for _, o := range slices.Sorted(maps.Keys(t.counts)) {
		tt.Logf("%-24s %8d", o, t.counts[o])
		total += t.counts[o]
	}
	tt.Logf("%-24s %8d", "calls", total)
	tt.Logf("%-24s %8d", "sessions' own processes", len(t.owners))
	if !t.enough() {
		tt.Errorf("only %d of %d calls were answered, %d timed out, and %d sessions had processes: this is no soak",
			t.counts[answered], total, t.counts[timedOut], len(t.owners))
	}
	for _, w := range t.wrongs {
		tt.Error(w)
	}
	for _, kind := range slices.Sorted(maps.Keys(t.violated)) {
		tt.Errorf("%d times: %s", t.violated[kind], kind)
	}
}

func TestJudgeError(t *testing.T) {
	for _, tt := range []struct {
		code int
		text string
		want outcome
	}{
		{-32010, `server "a" went away: the server closed its stdout`, unavailable},
		{-32010, `server "b" went away: the server closed its stdout`, wrong},
		{-32010, `something else`, wrong},
		{-32603, `server "a" went away: the server closed its stdout`, wrong},
		{-32800, `server "a" did not answer tools/call within 5s`, timedOut},
		{-32800, `the request was given up: the client cancelled it`, cancelled},
		{-32011, `server "a" has 12 processes of single sessions already, and its declaration allows no more: end another session, or raise sessions_max`, full},
		{-32011, `server "a" has 11 processes of single sessions already, and its declaration allows no more: end another session, or raise sessions_max`, wrong},
		{-32011, `server "b" has 12 processes of single sessions already, and its declaration allows no more: end another session, or raise sessions_max`, wrong},
		{-32010, `server "a" has 12 processes of single sessions already, and its declaration allows no more: end another session, or raise sessions_max`, wrong},
		{-32011, `starting a process of "a" for this session: as many as there may be: "a" has 12 sessions with a process of their own (sessions_max in /etc/pfar/mcp.d/a.hcl)`, full},
		{-32010, `starting a process of "a" for this session: the server was not ready within 30s`, unavailable},
		{-32011, `starting a process of "a" for this session: the server was not ready within 30s`, wrong},
		{-32603, `runtime error: index out of range`, wrong},
		{-32603, `pfar: Post "http://pfar/mcp": EOF`, transport},
		{0, ``, wrong},
	} {
		if got := judgeError(failure{tt.code, tt.text}, "a"); got != tt.want {
			t.Errorf("%d %s is %q, want %q", tt.code, tt.text, got, tt.want)
		}
	}
}

package session

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Question is a request to a client that waits for its answer.
type Question struct {
	Answer func(result []byte)
	Fail   func(*jsonrpc.Error)
}

// MaxQuestions bounds those of one session.
const MaxQuestions = 64

// Questions are those of one session, by their id.
type Questions struct {
	mu   sync.Mutex
	open map[string]Question
	last int64
}

// newQuestions begins the ids at a random number: a client whose session outlives the gateway may still answer a
// question of the one before.
func newQuestions() Questions {
	const ids = 20 // bits of the ids of one gateway
	return Questions{open: make(map[string]Question), last: rand.Int64N(1<<31) << ids}
}

// Enter enters a question, and returns the id to ask it with; nil if there are too many.
func (q *Questions) Enter(one Question) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.open) >= MaxQuestions {
		return nil
	}
	q.last++
	id := strconv.AppendInt(nil, q.last, 10)
	q.open[string(id)] = one
	return id
}

// Drop forgets a question. It reports whether it was still open.
func (q *Questions) Drop(id []byte) (Question, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	one, ok := q.open[string(id)]
	delete(q.open, string(id))
	return one, ok
}

// Answered takes a response of the client's. Other responses are ignored.
func (q *Questions) Answered(m jsonrpc.Message) {
	one, ok := q.Drop(m.ID)
	switch {
	case !ok:
	case m.Result != nil && m.Error == nil && m.Result[0] == '{':
		one.Answer(slices.Clone(m.Result))
	case m.Error != nil && m.Result == nil && jsonrpc.ValidError(m.Error):
		one.Fail(&jsonrpc.Error{Raw: slices.Clone(m.Error)})
	default:
		one.Fail(jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the client answered against the protocol"))
	}
}

// fail fails all that are open.
func (q *Questions) fail(e *jsonrpc.Error) {
	q.mu.Lock()
	open := q.open
	q.open = make(map[string]Question)
	q.mu.Unlock()
	for _, one := range open {
		one.Fail(e)
	}
}

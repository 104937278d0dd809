package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/packet"
)

// line is a launcher's connection, as far as it is asked something.
type line struct {
	conn *handover.Conn
	gone <-chan struct{} // closed when the conversation with its server has ended

	mu     sync.Mutex
	asked  map[string]chan reply // by the id of the question
	silent bool                  // it has not answered in time: it may be of a version that does not know the question
}

// reply is what a launcher answers.
type reply struct {
	wrong string // why it did not do it
	file  *os.File
}

func newLine(c *handover.Conn, gone <-chan struct{}) *line {
	return &line{conn: c, gone: gone, asked: map[string]chan reply{}}
}

var errNoLauncher = errors.New("the launcher is gone")

var errSilent = errors.New("the launcher does not answer; it may be older than this gateway: restart the server")

// ask sends a question, and waits for the answer.
func (l *line) ask(ctx context.Context, limit time.Duration, id string, m handover.Message) (reply, error) {
	if l == nil {
		return reply{}, errNoLauncher
	}
	answer := make(chan reply, 1)
	l.mu.Lock()
	silent := l.silent
	l.asked[id] = answer
	l.mu.Unlock()
	defer l.forget(id, answer)
	if silent {
		return reply{}, errSilent
	}
	if err := l.conn.Send(m); err != nil {
		return reply{}, fmt.Errorf("asking its launcher: %w", err)
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-answer:
		if r.wrong != "" {
			packet.CloseAll(r.files())
			return reply{}, errors.New(r.wrong)
		}
		return r, nil
	case <-late.C:
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
		return reply{}, errSilent
	case <-l.gone:
		return reply{}, errNoLauncher
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
}

func (r reply) files() []*os.File {
	if r.file == nil {
		return nil
	}
	return []*os.File{r.file}
}

// forget gives a question up.
func (l *line) forget(id string, answer chan reply) {
	l.mu.Lock()
	delete(l.asked, id)
	l.mu.Unlock()
	select {
	case r := <-answer:
		packet.CloseAll(r.files())
	default:
	}
}

// take passes an answer on to who has asked, and closes the files of any other message.
func (l *line) take(m handover.Message, files []*os.File) {
	id, r := "", reply{}
	switch {
	case m.Kept != nil:
		id, r.wrong = m.Kept.ID, m.Kept.Error
	case m.Undone != nil:
		id, r.wrong = m.Undone.ID, m.Undone.Error
		if len(files) == 1 {
			r.file, files = files[0], nil
		}
	}
	packet.CloseAll(files)
	if id == "" || l == nil {
		packet.CloseAll(r.files())
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = false
	if answer := l.asked[id]; answer != nil {
		delete(l.asked, id)
		answer <- r
		return
	}
	packet.CloseAll(r.files())
}

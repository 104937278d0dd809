package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/wants"
)

// commands has pfar's own program do what a person orders at a console, so that a console and a terminal do the same.
// It keeps the newest results in memory.
type commands struct {
	run   runner
	clean func(string) string // takes secrets out of an error
	told  func()              // tells consoles that there is another result
	home  string              // of the programs' files; "": there are none
	pfar  string              // path of pfar's own program; "": it is not where it belongs

	ctx     context.Context // of this pfard
	end     context.CancelFunc
	all     sync.WaitGroup
	learns  chan struct{} // holds one while a server learns
	imports chan struct{} // holds one while the file of a program is read or imported

	mu        sync.Mutex
	learned   map[string]chores.Learning // by server
	importing chores.Importing           // the newest
}

// runner runs pfar as cli.run does.
type runner func(ctx context.Context, limit time.Duration, args ...string) ([]byte, error)

// Limits of what runs. The time of learning counts from the start of the server, which may take a while.
const (
	learnTime   = "2m"
	learnLimit  = 10 * time.Minute
	readLimit   = time.Minute
	importLimit = time.Hour
)

// maxLesson is how many hosts a lesson keeps: a server may ask for names that it makes up.
const maxLesson = 200

// close ends what runs.
func (c *commands) close() {
	c.end()
	c.all.Wait()
}

// start runs f, which ends when this pfard does. Consoles are told then.
func (c *commands) start(f func()) {
	c.all.Go(func() {
		f()
		go c.told() // the loop may be waiting in close
	})
}

// words are those of an error, as a console may show them.
func (c *commands) words(err error) string { return printable(c.clean(err.Error())) }

// learn runs a server in learning mode. over is closed when it has ended.
func (c *commands) learn(server string) (over <-chan struct{}, err error) {
	select {
	case c.learns <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: a console has another server in learning mode; wait until that ends", control.ErrBusy)
	}
	l := chores.Learning{Began: time.Now().UTC()}
	c.mu.Lock()
	c.learned[server] = l
	c.mu.Unlock()
	done := make(chan struct{})
	c.start(func() {
		defer close(done)
		defer func() { <-c.learns }()
		text, err := c.run(c.ctx, learnLimit, "learn", server, "--for", learnTime, "--json")
		var found wants.Lesson
		switch {
		case json.Unmarshal(text, &found) == nil:
			found.Cut(maxLesson)
			l.Found = &found
		case err == nil:
			err = errors.New("pfar learn printed no result")
		}
		if err != nil {
			l.Failed = c.words(err)
		}
		l.Ended = time.Now().UTC()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.learned[server].UnderWay() {
			c.learned[server] = l
		}
	})
	return done, nil
}

// lessonOf is the newest run of pfar learn for a server.
func (c *commands) lessonOf(server string) chores.Learning {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.learned[server]
}

// suggests reports whether the newest lesson of a server suggests an entry of allowed_domains.
func (c *commands) suggests(server, entry string) bool {
	l := c.lessonOf(server)
	return l.Found != nil && slices.Contains(l.Found.Entries(), entry)
}

// forget forgets the lessons of servers that are gone: another server may get the name.
func (c *commands) forget(stays func(server string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.learned, func(server string, _ chores.Learning) bool { return !stays(server) })
}

// newest is the newest import.
func (c *commands) newest() chores.Importing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.importing
}

func (c *commands) set(i chores.Importing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.importing = i
}

// preview reads the file of a program, and returns what an import would do.
func (c *commands) preview(ctx context.Context, program string) (chores.Importing, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return chores.Importing{}, err
	}
	defer leave()
	return c.read(ctx, program)
}

// enter waits until nothing else reads or imports the file of a program. It does not wait for an import.
func (c *commands) enter(ctx context.Context) (leave func(), err error) {
	const words = "%w: the servers of %s are being imported; wait until that ends"
	if now := c.newest(); now.UnderWay() {
		return nil, fmt.Errorf(words, control.ErrBusy, now.Program)
	}
	select {
	case c.imports <- struct{}{}:
		return func() { <-c.imports }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: another file is being read; try again", control.ErrBusy)
	}
}

// read is preview for the caller of enter.
func (c *commands) read(ctx context.Context, program string) (i chores.Importing, err error) {
	if !slices.Contains(chores.There(c.home), program) {
		return i, fmt.Errorf("%w: there is no file of the program %q", control.ErrInvalid, program)
	}
	text, err := c.run(ctx, readLimit, "import", "--from", program, "--dry-run", "--json")
	i.Program = program
	if i.Import = importOf(text); i.Import == nil {
		if err == nil {
			err = errors.New("pfar import printed no result")
		}
		return i, errors.New(c.words(err))
	}
	shown, err := json.Marshal(i.Import)
	i.Digest = units.Digest(shown)
	return i, err
}

// importOf decodes what pfar import --json prints; nil: it is nothing.
func importOf(text []byte) *chores.Import {
	var i chores.Import
	if json.Unmarshal(text, &i) != nil || len(i.Files) == 0 {
		return nil
	}
	return &i
}

// importFrom imports the servers of a program, if a preview has shown the same as it would now. record is called
// before. It returns when the import has begun.
func (c *commands) importFrom(ctx context.Context, program, digest string, record func() error) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	now, err := c.read(ctx, program)
	switch {
	case err != nil:
	case now.Digest != digest:
		err = errors.New("the file, or what is declared, has changed since you saw it; load the page again")
	case len(now.Import.Wanted()) == 0:
		err = errors.New("nothing to import")
	default:
		err = record()
	}
	if err != nil {
		leave()
		return err
	}
	i := chores.Importing{Program: program, Began: time.Now().UTC()}
	c.set(i)
	c.start(func() {
		defer leave()
		text, err := c.run(c.ctx, importLimit, "import", "--from", program, "--yes", "--json")
		if i.Import = importOf(text); i.Import == nil && err == nil {
			err = errors.New("pfar import printed no result")
		}
		if err != nil {
			i.Failed = c.words(err)
		}
		i.Ended = time.Now().UTC()
		c.set(i)
	})
	return nil
}

package main

import "errors"

// inbox brings work to the goroutine of daemon.loop, which all that changes belongs to.
type inbox struct {
	work  chan func()
	ended chan struct{} // closed when the loop has ended: nobody takes work any more
}

func newInbox() inbox { return inbox{work: make(chan func(), 64), ended: make(chan struct{})} }

// post has f run in the loop; after its end f is dropped.
func (i inbox) post(f func()) {
	select {
	case i.work <- f:
	case <-i.ended:
	}
}

// do runs f in the loop and waits for it.
func (i inbox) do(f func() error) error {
	done := make(chan error, 1)
	i.post(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-i.ended:
		return errEnding
	}
}

var errEnding = errors.New("pfard is ending")

// around is what the parts of the daemon want of it. Its methods are called in the loop.
type around interface {
	tell()      // those who watch: something has changed
	reload()    // reads all declarations again
	forgotten() // of another server nothing is left
}

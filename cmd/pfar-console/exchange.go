package main

import (
	"context"
	"errors"
	"sync"
)

// exchange asks pfard one question at a time, and waits for the answer with the question's number.
type exchange[A any] struct {
	drop func(A) // takes an answer for which nobody waits any more

	mu     sync.Mutex
	number uint64
	waits  chan A // gets the answer to the question with that number; nil: nobody waits
}

// answer passes on what pfard says.
func (e *exchange[A]) answer(number uint64, a A) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits == nil || number != e.number {
		e.drop(a)
		return
	}
	e.waits <- a // it holds one
	e.waits = nil
}

var errBusy = errors.New("another question is under way")

// begin takes the exchange, unless somebody else waits for an answer.
func (e *exchange[A]) begin() (number uint64, waits chan A, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits != nil {
		return 0, nil, errBusy
	}
	e.number++
	e.waits = make(chan A, 1)
	return e.number, e.waits, nil
}

// end gives the exchange back, and drops an answer that has come too late.
func (e *exchange[A]) end(waits chan A) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits == waits {
		e.waits = nil
	}
	select {
	case late := <-waits:
		e.drop(late)
	default:
	}
}

// ask sends a question, and returns the answer.
func (e *exchange[A]) ask(ctx context.Context, send func(number uint64) error) (a A, err error) {
	number, waits, err := e.begin()
	if err != nil {
		return a, err
	}
	defer e.end(waits)
	if err := send(number); err != nil {
		return a, err
	}
	select {
	case a := <-waits:
		return a, nil
	case <-ctx.Done():
		return a, context.Cause(ctx)
	}
}

package main

import (
	"context"
	"errors"
	"sync"
)

// exchange asks pfard questions, at most so many at a time, and waits for the answers with the questions' numbers.
type exchange[A any] struct {
	drop func(A) // takes an answer for which nobody waits any more
	most int     // 0: one

	mu     sync.Mutex
	number uint64            // of the last question
	waits  map[uint64]chan A // each gets the answer to the question with that number
}

// answer passes on what pfard says.
func (e *exchange[A]) answer(number uint64, a A) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waits, known := e.waits[number]
	if !known {
		e.drop(a)
		return
	}
	waits <- a // it holds one
	delete(e.waits, number)
}

var errBusy = errors.New("another question is under way")

// begin takes a place in the exchange, if one is free.
func (e *exchange[A]) begin() (number uint64, waits chan A, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waits) >= max(e.most, 1) {
		return 0, nil, errBusy
	}
	if e.waits == nil {
		e.waits = map[uint64]chan A{}
	}
	e.number++
	waits = make(chan A, 1)
	e.waits[e.number] = waits
	return e.number, waits, nil
}

// end gives the place back, and drops an answer that has come too late.
func (e *exchange[A]) end(number uint64, waits chan A) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waits, number)
	select {
	case late := <-waits:
		e.drop(late)
	default:
	}
}

// ask sends a question, and returns the answer. If ctx ends first, it calls gone with the question's number, unless
// gone is nil.
func (e *exchange[A]) ask(
	ctx context.Context, send func(number uint64) error, gone func(number uint64),
) (a A, err error) {
	number, waits, err := e.begin()
	if err != nil {
		return a, err
	}
	defer e.end(number, waits)
	if err := send(number); err != nil {
		return a, err
	}
	select {
	case a := <-waits:
		return a, nil
	case <-ctx.Done():
		if gone != nil {
			gone(number)
		}
		return a, context.Cause(ctx)
	}
}

package main

import (
	"context"
	"time"

	"github.com/pfar/pfar/units/attach"
)

// pageRunner runs the process of a page or of a user's console, and calls talk with the conversation. It returns when
// the process has ended. It also runs the checks that consoles show, and verifies the audit for them.
type pageRunner interface {
	checkRunner
	verifyRunner
	runPage(ctx context.Context, instance string, talk pageTalk) error
	runConsole(ctx context.Context, uid int, talk pageTalk) error
}

// pageTalk is the conversation with the process of a page, until that has ended.
type pageTalk func(*attach.Conn)

// pageStart is how long the process of a page has until it listens.
const pageStart = 30 * time.Second

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// A view has at most this many bytes, and pfard this long to make it, and the pages before this one to read theirs.
const (
	maxView  = 256 << 10
	viewTime = 8 * time.Second // less than loopback.WriteTime
)

// view returns the last bytes of a text that pfard has or makes. more says that there are earlier ones. what names the
// text in errors. The text is as others wrote it.
func (a *archive) view(ctx context.Context, v attach.View, what string) (text string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	unread := func(why string) error {
		return &ask.Refusal{Reason: "the console cannot read " + what + ": " + visible.Reveal(why)}
	}
	done, err := a.turn(ctx, unread)
	if err != nil {
		return "", false, err
	}
	defer done()
	asks := func(q attach.Question) error {
		v.Question = q
		return a.asksView(v)
	}
	got, err := a.fetch(ctx, asks, unread)
	if err != nil {
		return "", false, err
	}
	defer attach.CloseAll(got.files)
	if len(got.files) == 0 { // it is empty
		return "", false, nil
	}
	text, more, err = lastBytes(got.files[0])
	if err != nil {
		return "", false, unread(err.Error())
	}
	return text, more || got.More, nil
}

// viewOf decodes a view that pfard has written in JSON. command shows the same in a terminal.
func viewOf[T any](ctx context.Context, a *archive, v attach.View, what, command string) (value T, err error) {
	text, more, err := a.view(ctx, v, what)
	if err == nil && (more || json.Unmarshal([]byte(text), &value) != nil) {
		err = &ask.Refusal{Reason: "the console cannot read " + what + ": run " + visible.Reveal(command)}
	}
	return value, err
}

// tooLong is the error of a view that does not fit a page; the command shows all of it.
func tooLong(command string) error {
	return &ask.Refusal{Reason: "this is the end of a longer text: to see all of it, run " + visible.Reveal(command)}
}

// lastBytes reads the end of a file.
func lastBytes(f *os.File) (text string, more bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	from := max(0, info.Size()-maxView)
	b, err := io.ReadAll(io.NewSectionReader(f, from, maxView))
	return string(b), from > 0, err
}

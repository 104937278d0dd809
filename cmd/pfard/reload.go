package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/pfar/pfar/generator/boot"
	"github.com/pfar/pfar/units/systemd"
)

// reloader has systemd read its units again when its generator would write other ones, so that systemctl
// list-dependencies tells what starts at the next boot. Nothing waits for it: what runs is asked for by name.
type reloader struct {
	log  *slog.Logger
	link *systemd.Link
	want chan []boot.File // the newest alone

	generated string // where the generator writes
}

const reloadPause = 2 * time.Second // after the last change: systemd does nothing else for a sixth of a second

func newReloader(log *slog.Logger, link *systemd.Link, generated string) *reloader {
	return &reloader{log: log, link: link, want: make(chan []boot.File, 1), generated: generated}
}

// files tells what the generator would write now. It does not wait.
func (r *reloader) files(now []boot.File) {
	if r == nil {
		return
	}
	select {
	case <-r.want:
	default:
	}
	r.want <- now // files has one caller
}

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context) {
	for {
		var want []boot.File
		select {
		case want = <-r.want:
		case <-ctx.Done():
			return
		}
		for settled := false; !settled; {
			select {
			case want = <-r.want:
			case <-time.After(reloadPause):
				settled = true
			case <-ctx.Done():
				return
			}
		}
		if boot.Current(os.DirFS(r.generated), want) {
			continue
		}
		if err := r.reload(ctx); err != nil {
			r.log.Warn("having systemd read its units again, ignoring", "error", err)
		}
	}
}

func (r *reloader) reload(ctx context.Context) error {
	bus, err := r.link.Bus(ctx)
	if err != nil {
		return err
	}
	return bus.Reload(ctx)
}

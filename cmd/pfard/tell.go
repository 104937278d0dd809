package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/pfar/pfar/units/systemd"
)

// tellTime is for systemd to take a request.
const tellTime = 5 * time.Second

// tellSystemd has systemd do something about an instance that goes on without it.
func tellSystemd(
	log *slog.Logger, link *systemd.Link, doing, instance string, f func(context.Context, *systemd.Bus) error,
) {
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	bus, err := link.Bus(ctx)
	if err == nil {
		err = f(ctx, bus)
	}
	if err != nil {
		log.Warn(doing+", ignoring", "server", instance, "error", err)
	}
}

package journal

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
)

// Redacting has text pass over every word that a record holds before next gets it.
func Redacting(next slog.Handler, text func(string) string) slog.Handler {
	return &redacting{next, text}
}

type redacting struct {
	next slog.Handler
	text func(string) string
}

func (h *redacting) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *redacting) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attribute(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

func (h *redacting) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &redacting{h.next.WithAttrs(h.attributes(attrs)), h.text}
}

func (h *redacting) WithGroup(name string) slog.Handler {
	return &redacting{h.next.WithGroup(name), h.text}
}

func (h *redacting) attributes(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attribute(a)
	}
	return clean
}

// words are what slog.TextHandler makes of a value.
func words(v any) string {
	switch v := v.(type) {
	case encoding.TextMarshaler:
		if b, err := v.MarshalText(); err == nil {
			return string(b)
		}
	case []byte:
		return string(v)
	}
	return fmt.Sprintf("%+v", v)
}

// attribute leaves numbers, times and the like as they are.
func (h *redacting) attribute(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(h.text(v.String()))
	case slog.KindGroup:
		v = slog.GroupValue(h.attributes(v.Group())...)
	case slog.KindAny:
		v = slog.StringValue(h.text(words(v.Any())))
	}
	return slog.Attr{Key: a.Key, Value: v}
}

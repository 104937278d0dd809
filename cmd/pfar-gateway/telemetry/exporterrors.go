package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// exportErrors logs what goes wrong with traces, at most once a minute: a collector that is away is no reason to fill a
// log.
type exportErrors struct {
	log     *slog.Logger
	secrets *strings.Replacer

	mu     sync.Mutex
	count  int
	logged time.Time
}

func newExportErrors(log *slog.Logger) *exportErrors {
	return &exportErrors{log: log, secrets: strings.NewReplacer(secrets(os.Environ())...)}
}

// secrets are the parts of the OTEL variables' values that an error might repeat, each before what replaces it: a
// collector's address may hold a key as well as a header may.
func secrets(environment []string) []string {
	var list []string
	hide := func(s string) {
		if len(strings.Trim(s, "/")) > 2 {
			list = append(list, s, "[...]")
		}
	}
	for _, e := range environment {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case !strings.HasPrefix(name, "OTEL_"):
		case strings.HasSuffix(name, "_ENDPOINT"):
			hide(value)
			if u, err := url.Parse(strings.TrimSpace(value)); err == nil {
				hide(u.Host)
				hide(u.Hostname())
				hide(u.Path)
				hide(u.RawQuery)
				hide(u.User.Username())
				password, _ := u.User.Password()
				hide(password)
				for _, values := range u.Query() {
					for _, v := range values {
						hide(v)
					}
				}
			}
		case strings.HasSuffix(name, "_HEADERS"), strings.HasSuffix(name, "_ATTRIBUTES"):
			for pair := range strings.SplitSeq(value, ",") {
				_, v, _ := strings.Cut(pair, "=")
				hide(strings.TrimSpace(v))
				if plain, err := url.PathUnescape(v); err == nil {
					hide(strings.TrimSpace(plain))
				}
			}
		case strings.HasSuffix(name, "_CERTIFICATE"), strings.HasSuffix(name, "_KEY"):
			hide(value)
		}
	}
	return list
}

// clean returns an error that can be logged: without addresses and keys, short, and with nothing that a terminal acts
// on. The text may be the collector's.
func (e *exportErrors) clean(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New("the collector did not answer in time")
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	const most = 160
	words := e.secrets.Replace(err.Error())
	cut := ""
	if len(words) > most {
		words, cut = words[:most], "..."
	}
	return errors.New(strconv.QuoteToASCII(words) + cut)
}

// Handle is the SDK's error handler.
func (e *exportErrors) Handle(err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	e.count++
	n, quiet := e.count, time.Since(e.logged) < time.Minute
	if !quiet {
		e.logged = time.Now()
	}
	e.mu.Unlock()
	if !quiet {
		e.log.Warn("sending traces, ignoring", "error", e.clean(err).Error(), "count", n)
	}
}

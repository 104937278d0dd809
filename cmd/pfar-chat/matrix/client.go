// Package matrix speaks with one Matrix homeserver for one account: messages of one owner in direct rooms in, answers
// and deletions out.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/id"
)

// Account is one account at a homeserver, and the only person that it listens to.
type Account struct {
	Homeserver string // base address, such as https://matrix.example.org
	User       string // the account, such as @pfar:example.org
	Owner      string // the person, such as @ada:example.org
	Token      string // access token of the account, a secret; "": Config.HTTP adds it to requests
}

// Config configures a Client.
type Config struct {
	Account
	HTTP  *http.Client  // reaches only the homeserver
	State string        // directory of this account, which exists
	Pause time.Duration // before a request is sent again the first time; then twice as long; 0: a second
	Log   *slog.Logger
}

// Client is an account in use. One process at a time uses a state directory.
type Client struct {
	people
	api      *mautrix.Client
	progress *progress
	pause    time.Duration
	log      *slog.Logger
	quiet    atomic.Bool // the homeserver keeps no messages in notifications of the account
}

const (
	tries    = 6                // of one request
	patience = 2 * time.Minute  // for one request with all its tries
	longest  = time.Minute      // between two tries to reach the homeserver
	poll     = 30 * time.Second // for which the homeserver holds a request for news
	maxReply = 32 << 20         // bytes of one answer of the homeserver
)

// New checks an account and reads its progress from the disk. It sends no request. Its errors do not contain the
// token.
func New(c Config) (*Client, error) {
	if err := c.Mistake(); err != nil {
		return nil, err
	}
	u, err := url.Parse(c.Homeserver)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("homeserver: %.255q is not a base address: want one such as https://matrix.example.org",
			c.Homeserver)
	}
	if c.State == "" || c.HTTP == nil || c.Log == nil {
		return nil, errors.New("an account needs a state directory, a way out and a log")
	}
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	api, err := mautrix.NewClient(c.Homeserver, id.UserID(c.User), c.Token)
	if err != nil {
		return nil, fmt.Errorf("homeserver: %w", err)
	}
	plain := *c.HTTP
	// The token goes nowhere else.
	plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	api.Client, api.UserAgent = &plain, "pfar"
	api.DefaultHTTPRetries, api.DefaultHTTPBackoff, api.ResponseSizeLimit = tries-1, c.Pause, maxReply
	p, err := openProgress(c.State, id.UserID(c.User))
	if err != nil {
		return nil, err
	}
	who := people{bot: id.UserID(c.User), owner: id.UserID(c.Owner)}
	return &Client{people: who, api: api, progress: p, pause: c.Pause, log: c.Log}, nil
}

// ErrToken says that the homeserver does not accept the token for the account.
var ErrToken = errors.New("the homeserver does not accept the access token")

// Connect returns when the homeserver has accepted the account and switched off its notifications: a homeserver may
// keep copies of messages in them that survive a deletion. It tries until ctx ends. ErrToken lasts until the owner
// acts.
func (c *Client) Connect(ctx context.Context) error {
	return c.persist(ctx, "reaching the homeserver", func(ctx context.Context) error {
		who, err := c.api.Whoami(ctx)
		if err != nil {
			return err
		}
		if who.UserID != c.bot {
			return fmt.Errorf("%w for %s: the token belongs to %.255q", ErrToken, c.bot, who.UserID)
		}
		return c.hush(ctx)
	})
}

// hush switches off all notifications of the account.
func (c *Client) hush(ctx context.Context) error {
	if c.quiet.Load() {
		return nil
	}
	at := c.api.BuildClientURL("v3", "pushrules", "global", "override", ".m.rule.master", "enabled")
	var now struct {
		Enabled bool `json:"enabled"`
	}
	_, err := c.api.MakeRequest(ctx, http.MethodPut, at, map[string]bool{"enabled": true}, nil)
	if err == nil {
		_, err = c.api.MakeRequest(ctx, http.MethodGet, at, nil, &now)
	}
	switch {
	case err != nil:
		return fmt.Errorf("switching off notifications of %s: %w", c.bot, plain(err))
	case !now.Enabled:
		return fmt.Errorf("switching off notifications of %s: the homeserver left them on", c.bot)
	}
	c.quiet.Store(true)
	return nil
}

// persist repeats do until it succeeds, the homeserver refuses the token, or ctx ends.
func (c *Client) persist(ctx context.Context, what string, do func(context.Context) error) error {
	pause, told := c.pause, ""
	for {
		err := c.once(ctx, do)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, mautrix.MUnknownToken), errors.Is(err, mautrix.MMissingToken):
			return ErrToken
		case errors.Is(err, ErrToken):
			return err
		}
		if words := plain(err).Error(); words != told {
			told = words
			c.log.Warn(what+", trying again", "account", string(c.bot), "error", words)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, max(longest, c.pause))
	}
}

// once calls do with the time limit of one request.
func (c *Client) once(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return do(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// final reports whether the homeserver will answer the same if it is asked again.
func final(err error) bool {
	e, is := errors.AsType[mautrix.HTTPError](err)
	return is && e.Response != nil && e.Response.StatusCode >= 400 && e.Response.StatusCode < 500 &&
		e.Response.StatusCode != http.StatusTooManyRequests && e.Response.StatusCode != http.StatusUnauthorized
}

// plain returns the error of a request without text of the homeserver and without addresses, because both may contain
// words of a message.
func plain(err error) error {
	if e, is := errors.AsType[mautrix.HTTPError](err); is && e.Response != nil {
		code := ""
		if e.RespError != nil && len(e.RespError.ErrCode) <= 64 && named(e.RespError.ErrCode) {
			code = " " + e.RespError.ErrCode
		}
		if e.RespError == nil && e.Response.StatusCode/100 == 2 {
			return fmt.Errorf("the homeserver's answer does not follow the Matrix protocol")
		}
		return fmt.Errorf("the homeserver answers %d%s", e.Response.StatusCode, code)
	}
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err
	}
	return err
}

// named reports whether a code is a name, as Matrix has them.
func named(code string) bool {
	for _, r := range code {
		if r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return false
		}
	}
	return code != ""
}

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
	"strconv"
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
	connection
	progress *progress
}

// connection is how an account reaches its homeserver: each request is tried more than once.
type connection struct {
	people
	api   *mautrix.Client
	pause time.Duration
	log   *slog.Logger
	quiet atomic.Bool // the homeserver keeps no messages in notifications of the account
}

const (
	tries    = 6                // of one request
	patience = 2 * time.Minute  // for one try
	longest  = time.Minute      // between two tries
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
	api.Client, api.UserAgent, api.ResponseSizeLimit = &plain, "pfar", maxReply // persist and tried try again
	p, err := openProgress(c.State, id.UserID(c.User))
	if err != nil {
		return nil, err
	}
	who := people{bot: id.UserID(c.User), owner: id.UserID(c.Owner)}
	return &Client{connection{people: who, api: api, pause: c.Pause, log: c.Log}, p}, nil
}

// ErrToken says that the homeserver does not accept the token for the account.
var ErrToken = errors.New("the homeserver does not accept the access token")

// Connect returns when the homeserver has accepted the account and switched off its notifications: a homeserver may
// keep copies of messages in them that survive a deletion. It tries to reach it until ctx ends. ErrToken lasts until
// the owner acts.
func (c *Client) Connect(ctx context.Context) error {
	if err := c.persist(ctx, "reaching the homeserver", c.alive); err != nil {
		return err
	}
	return c.silence(ctx)
}

// errAnswer is of an answer of the homeserver that lacks what Matrix wants in it.
var errAnswer = errors.New("the homeserver's answer is not as Matrix has it")

// alive is nil if the homeserver answers and accepts the token for the account.
func (c *connection) alive(ctx context.Context) error {
	who, err := c.api.Whoami(ctx)
	switch {
	case err != nil:
		return err
	case who == nil:
		return errAnswer
	case who.UserID != c.bot:
		return fmt.Errorf("%w for %s: it is of %.255q", ErrToken, c.bot, who.UserID)
	}
	return nil
}

// silence switches the account's notifications off, all of them.
func (c *connection) silence(ctx context.Context) error {
	if err := c.tried(ctx, c.hush); err != nil {
		return fmt.Errorf("switching off notifications of %s: %w", c.bot, plain(err))
	}
	return nil
}

// hush does it with one try.
func (c *connection) hush(ctx context.Context) error {
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
		return err
	case !now.Enabled:
		return errors.New("the homeserver has not done it")
	}
	c.quiet.Store(true)
	return nil
}

// persist does something until it succeeds, the token turns out to be wrong, or ctx ends.
func (c *connection) persist(ctx context.Context, what string, do func(context.Context) error) error {
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

// tried does something a bounded number of times. It counts only tries at which the homeserver answers otherwise, so
// that an outage is not taken for a fault of one room or message. Its error ends the chat if ends says so.
func (c *connection) tried(ctx context.Context, do func(context.Context) error) error {
	for n, pause := 1, c.pause; ; n, pause = n+1, min(2*pause, max(longest, c.pause)) {
		failed := c.once(ctx, do)
		switch {
		case failed == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case final(failed), n == tries:
			return failed
		}
		if err := c.persist(ctx, "reaching the homeserver", c.alive); err != nil {
			return err
		}
		if err := sleep(ctx, max(pause, wanted(failed))); err != nil {
			return err
		}
	}
}

// ends reports whether an error of tried is not of one room or message: ctx has ended, or the token is wrong.
func ends(ctx context.Context, err error) bool { return ctx.Err() != nil || errors.Is(err, ErrToken) }

// wanted is the time for which the homeserver wants no further request, at most longest.
func wanted(err error) time.Duration {
	e, is := errors.AsType[mautrix.HTTPError](err)
	if !is || e.Response == nil || e.Response.StatusCode != http.StatusTooManyRequests {
		return 0
	}
	seconds, err := strconv.Atoi(e.Response.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 3600))*time.Second, longest)
}

// once does something in the time that one try may take.
func (c *connection) once(ctx context.Context, do func(context.Context) error) error {
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
			return errAnswer
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

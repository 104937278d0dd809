package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

const (
	crowdServers  = 50
	crowdSessions = 500
	crowdCalls    = 40 // of each session

	early        = 100_000 // calls after which memory is measured first
	late         = 1_000_000
	limitGrowth  = 1.1     // of the memory after early calls
	growthMargin = 4 << 20 // and bytes beside it
	inFlight     = 64
)

// crowd is many sessions on many servers, all at once: every one has to be served.
func (s *stage) crowd() ([]result, error) {
	p, err := up(s.ctx, s.dir, s.bin, fleetOf(crowdServers, []string{filepath.Join(s.bin, "echo")}, ""))
	if err != nil {
		return nil, err
	}
	defer p.down()
	if err := p.await(s.ctx, allRunning(crowdServers)); err != nil {
		return nil, err
	}
	address, token, err := p.endpoint(s.ctx)
	if err != nil {
		return nil, err
	}
	pid, err := p.process("pfar-gateway")
	if err != nil {
		return nil, err
	}
	f, err := crowdOf(address, token)
	defer f.close()
	if err != nil {
		return nil, err
	}
	took, err := f.run(crowdSessions * crowdCalls)
	if err != nil {
		return nil, err
	}
	held, err := resident(pid)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d servers, %d sessions at once, %d calls", crowdServers, crowdSessions, crowdSessions*crowdCalls)
	return []result{
		{What: what + ": all answered", In: fmt.Sprintf("%.0f/s", took.rate), Limit: "no error", Within: true, Limited: true},
		{What: what + ": p50, p99", In: milliseconds(took.p50) + ", " + milliseconds(took.p99)},
		{What: what + ": memory of the gateway afterwards (RSS)", In: mebibytes(held)},
	}, nil
}

// crowdOf opens the sessions side by side, each for one server's tool on the aggregate.
func crowdOf(address, token string) (*fleetOfClients, error) {
	f := &fleetOfClients{}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for i := range crowdSessions {
		all.Go(func() {
			r := route{name: "crowd", address: address, path: "/mcp", token: token, version: older,
				tool: fmt.Sprintf("echo-%02d__echo", i%crowdServers), message: "crowd"}
			c, err := r.open()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			f.clients = append(f.clients, c)
		})
	}
	all.Wait()
	return f, errors.Join(errs...)
}

// endurance is a million calls, after which the gateway must hold no more than after the first of them.
func (s *stage) endurance() ([]result, error) {
	p, err := up(s.ctx, s.dir, s.bin, fleetOf(1, []string{filepath.Join(s.bin, "echo")}, ""))
	if err != nil {
		return nil, err
	}
	defer p.down()
	if err := p.await(s.ctx, allRunning(1)); err != nil {
		return nil, err
	}
	address, token, err := p.endpoint(s.ctx)
	if err != nil {
		return nil, err
	}
	pid, err := p.process("pfar-gateway")
	if err != nil {
		return nil, err
	}
	f := &fleetOfClients{}
	defer f.close()
	for i := range inFlight {
		r := route{name: "endurance", address: address, path: "/mcp", token: token, version: []string{older, newer}[i%2], tool: "echo-00__echo", message: "again"}
		if err := f.add(r); err != nil {
			return nil, err
		}
	}
	if _, err := f.run(early); err != nil {
		return nil, err
	}
	before, err := resident(pid)
	if err != nil {
		return nil, err
	}
	took, err := f.run(late - early)
	if err != nil {
		return nil, err
	}
	after, err := resident(pid)
	if err != nil {
		return nil, err
	}
	limit := int(float64(before)*limitGrowth) + growthMargin
	return []result{{
		What:  fmt.Sprintf("memory of the gateway (RSS) after %d and %d calls, %.0f a second", early, late, took.rate),
		Plain: mebibytes(before), In: mebibytes(after), Added: mebibytes(after - before),
		Limit: mebibytes(limit) + " in all", Within: after <= limit, Limited: true,
	}}, nil
}

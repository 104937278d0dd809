package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// What systemd's messages about units are known by (systemd/sd-messages.h).
const (
	unitStarting = "7d4958e842da4a758f6c1cdc7b36dcc5"
	unitStarted  = "39f53479d3a045ac8e11786248231fbf"
)

// moments are when this boot has begun to start units, and when they were started, in µs of the monotonic clock.
func moments() (starting, started map[string]int, err error) {
	starting, started = map[string]int{}, map[string]int{}
	out, err := exec.Command("journalctl", "--boot", "--output=json", "_PID=1", "MESSAGE_ID="+unitStarting, "MESSAGE_ID="+unitStarted).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("journalctl: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var e struct {
			Unit string `json:"UNIT"`
			ID   string `json:"MESSAGE_ID"`
			At   string `json:"__MONOTONIC_TIMESTAMP"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, nil, fmt.Errorf("journalctl: %w: %s", err, line)
		}
		at, err := strconv.Atoi(e.At)
		if err != nil {
			return nil, nil, err
		}
		if e.ID == unitStarting {
			starting[e.Unit] = at
		} else {
			started[e.Unit] = at
		}
	}
	return starting, started, nil
}

// bootOrder: first the network and pfard, then all servers, none of which waits for another. The target waits for none.
func bootOrder() (string, error) {
	if err := eventually(func() error {
		if s := show("pfar.target", "ActiveState"); s != "active" {
			return fmt.Errorf("pfar.target is %s", s)
		}
		return nil
	}); err != nil {
		return "", err
	}
	starting, started, err := moments()
	if err != nil {
		return "", err
	}
	var firstStarting, lastStarting, firstStarted, lastStarted int
	for _, name := range atBoot {
		unit := "pfar-mcp@" + name + ".service"
		from, to := starting[unit], started[unit]
		if from == 0 || to == 0 {
			return "", fmt.Errorf("the journal has no start of %s: %v, %v", unit, starting, started)
		}
		if firstStarting == 0 || from < firstStarting {
			firstStarting = from
		}
		if firstStarted == 0 || to < firstStarted {
			firstStarted = to
		}
		lastStarting, lastStarted = max(lastStarting, from), max(lastStarted, to)
	}
	detail := fmt.Sprintf("µs: network %d, pfard %d, servers from %d to %d, ready from %d to %d, target %d", started["network-online.target"],
		started["pfard.service"], firstStarting, lastStarting, firstStarted, lastStarted, started["pfar.target"])
	for _, unit := range []string{"slow-network.service", "network-online.target", "pfard.service"} {
		if at := started[unit]; at == 0 || at > firstStarting {
			err = errors.Join(err, fmt.Errorf("%s was started at %d, servers from %d on", unit, at, firstStarting))
		}
	}
	if lastStarting > firstStarted {
		err = errors.Join(err, fmt.Errorf("a server began at %d, when one was ready since %d", lastStarting, firstStarted))
	}
	if after := show("pfar.target", "After"); strings.Contains(after, "pfar-mcp@") {
		err = errors.Join(err, fmt.Errorf("pfar.target waits for %s", after))
	}
	return detail, err
}

func bootDependencies() (string, error) {
	out, err := output("systemctl", "list-dependencies", "--plain", "pfar.target")
	if err != nil {
		return "", fmt.Errorf("systemctl: %w: %s", err, out)
	}
	for _, name := range atBoot {
		err = errors.Join(err, contains(out, "pfar-mcp@"+name+".service"))
	}
	return "", err
}

// nothingFailed looks at pfar's units only: on a busy machine systemd gives up on units of its own.
func nothingFailed() (string, error) {
	out, err := output("systemctl", "list-units", "--failed", "--plain", "--no-legend", "pfar*")
	if strings.TrimSpace(out) != "" {
		err = errors.Join(err, errors.New(out))
	}
	return "", err
}

package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/plan"
)

// Inspectors has systemd run inspectors as instances of the units that pfar ships.
type Inspectors struct {
	run  string // run directory
	asks patient

	mu   sync.Mutex
	want []plan.Inspection
	new  bool // want has not been looked at
	busy bool // somebody looks
}

// NewInspectors returns Inspectors of a run directory, of which none is known yet.
func NewInspectors(log *slog.Logger, link *Link, run string) *Inspectors {
	return &Inspectors{run: run, asks: patient{link, log}}
}

// Talks returns why no chat can be held; nil: chats are held.
func (i *Inspectors) Talks() error {
	if os.Getuid() != 0 {
		return errors.New("the pfar of one user's systemd holds no chats; the machine's pfar and pfar up do")
	}
	return nil
}

// Inspect has the inspectors of these plans be there, by their sockets, and no others. It does not wait; the newest
// list counts.
func (i *Inspectors) Inspect(want []plan.Inspection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.want, i.new = want, true
	if !i.busy {
		i.busy = true
		go i.inspect()
	}
}

func (i *Inspectors) inspect() {
	for {
		i.mu.Lock()
		want := i.want
		if !i.new {
			i.busy = false
			i.mu.Unlock()
			return
		}
		i.new = false
		i.mu.Unlock()
		if err := i.bring(want); err != nil {
			i.asks.log.Error("having inspectors run", "error", err)
		}
	}
}

// bring has what runs be what is wanted. What a plan says is in a file, the credential of its unit: one that is there
// and says the same is of an inspector that goes on.
func (i *Inspectors) bring(want []plan.Inspection) error {
	dir := units.InspectDir(i.run)
	defer os.Remove(dir) // if there is none left
	err := os.MkdirAll(dir, 0o711)
	if err == nil {
		err = os.Chmod(dir, 0o711) // for the gateway, whatever the umask
	}
	if err != nil {
		return fmt.Errorf("making the directory of inspectors: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+planSuffix))
	if err != nil {
		return err
	}
	old := map[string]bool{}
	for _, file := range left {
		old[strings.TrimSuffix(filepath.Base(file), planSuffix)] = true
	}
	var errs []error
	for _, p := range want {
		name := p.Inspector.Name
		errs = append(errs, i.bringOne(filepath.Join(dir, name+planSuffix), p, old[name]))
		delete(old, name)
	}
	for name := range old {
		err := i.stop(name)
		errs = append(errs, err, removeFile(filepath.Join(dir, name+planSuffix)))
	}
	return errors.Join(errs...)
}

func (i *Inspectors) bringOne(file string, p plan.Inspection, there bool) error {
	name := p.Inspector.Name
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("writing the plan of inspector %q: %w", name, err)
	}
	if !sameText(file, raw) {
		if there {
			if err := i.stop(name); err != nil {
				return err
			}
		}
		if err := durable.Replace(file, raw); err != nil {
			return fmt.Errorf("writing the plan of inspector %q: %w", name, err)
		}
	}
	unit := program + name + socket
	if p.Inspector.URL != "" {
		unit = model + name + socket
	}
	if err := i.start(unit); err != nil || p.Inspector.Account == nil {
		return err
	}
	return i.start(ChatUnit(name))
}

// start has systemd start a unit, if nothing of it runs, and does not wait until that has ended.
func (i *Inspectors) start(unit string) error {
	return i.asks.persist(context.Background(), "starting "+unit, func(ctx context.Context, bus *Bus) error {
		return bus.StartUnit(ctx, unit, func(result string) {
			if result != "done" {
				i.asks.log.Error("starting what an inspector or a chat needs", "unit", unit, "result", result)
			}
		})
	})
}

// stop returns when nothing of an inspector is left, whatever it was.
func (i *Inspectors) stop(name string) error {
	return i.asks.persist(context.Background(), "stopping inspector "+name, func(ctx context.Context, bus *Bus) error {
		for _, unit := range []string{
			chat + name + socket, ChatUnit(name), program + name + socket, program + name + service,
			model + name + socket, ModelUnit(name),
		} {
			if err := bus.StopUnit(ctx, unit); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reinspect has the process that asks a model begin anew with the next question: its key is another one. The
// conversation of a chat begins anew at once. It does not wait.
func (i *Inspectors) Reinspect(name string) {
	i.mu.Lock()
	talks := slices.ContainsFunc(i.want, func(p plan.Inspection) bool {
		return p.Inspector.Name == name && p.Inspector.Account != nil
	})
	i.mu.Unlock()
	go func() {
		err := i.asks.persist(context.Background(), "stopping "+ModelUnit(name), func(ctx context.Context, bus *Bus) error {
			if talks {
				if err := bus.StopUnit(ctx, ChatUnit(name)); err != nil {
					return err
				}
			}
			return bus.StopUnit(ctx, ModelUnit(name))
		})
		if err == nil && talks {
			err = i.start(ChatUnit(name))
		}
		if err != nil {
			i.asks.log.Error("having an inspector take another key", "inspector", name, "error", err)
		}
	}()
}

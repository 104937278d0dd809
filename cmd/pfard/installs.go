package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/pfar/pfar/cmd/pfard/install"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/installer"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// installs has the packages of declarations installed. It is install.Around.
type installs struct {
	jobs      *install.Jobs
	inbox     inbox
	reader    *reader
	redaction *redaction
	around    around
}

func newInstalls(d *daemon) *installs {
	i := &installs{inbox: d.inbox, reader: d.reader, redaction: d.redaction, around: d}
	i.jobs = install.New(d.log, d.options.dirs.Packages(), i)
	return i
}

// Settings are those of this host. A person's own count where pfard is that person's.
func (i *installs) Settings() installer.Reader {
	return installer.Reader{Host: i.reader.host(), Own: os.Getuid() != 0, Env: os.Getenv}
}

// Clean takes out what must not be shown.
func (i *installs) Clean(text string) string { return printable(i.redaction.clean(text)) }

// Installed has declarations that name the package be read again.
func (i *installs) Installed(source.Package) { i.inbox.post(i.around.reload) }

// Log says where the process of a job writes. Without systemd, those of all jobs write to one file.
func (i *installs) Log(instance string) string {
	if i.reader.options.local {
		instance = installer.Server
	}
	return i.reader.fleet.runner.Log(instance)
}

// install has a package installed, and sends each change until it is there or cannot be.
func (o *orders) install(ctx context.Context, q control.Request, send func(control.Response) error) error {
	p, err := o.wished(q)
	if err != nil {
		return err
	}
	job, err := o.installs.jobs.Begin(p)
	if err != nil {
		return err
	}
	return job.Watch(ctx, func(state control.Installing) error {
		return send(control.Response{Declarations: control.Declarations{Installing: &state}})
	})
}

// wished is the package that a request means.
func (o *orders) wished(q control.Request) (p source.Package, err error) {
	text := q.Package
	switch {
	case (q.Package == "") == (q.Server == ""):
		return p, fmt.Errorf("%w: want a package or a server", control.ErrInvalid)
	case q.Server != "" && !units.IsServer(q.Server):
		return p, fmt.Errorf("%w: %q is not the name of a server", control.ErrInvalid, q.Server)
	case q.Server != "":
		if err = o.do(func() error { text, err = o.installs.packageOf(q.Server); return err }); err != nil {
			return p, err
		}
	}
	if p, err = source.ParseExact(text); err != nil {
		return p, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	p.Bin = ""
	return p, nil
}

// packageOf is the package that a declaration names.
func (i *installs) packageOf(server string) (string, error) {
	at := slices.IndexFunc(i.reader.declared, func(s declaration.Server) bool { return s.Name == server })
	switch {
	case at < 0:
		return "", fmt.Errorf("%w: %q", control.ErrNoServer, server)
	case i.reader.declared[at].Package == "":
		return "", fmt.Errorf("%w: %q names no package in %s", control.ErrInvalid, server, i.reader.declared[at].File)
	}
	return i.reader.declared[at].Package, nil
}

package installer

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// Server is the name that installers have among servers. No declaration can have it: it begins with a digit.
const Server = "0install"

// What a job leaves in its folder, beside the files of the package.
const (
	Tree = "tree"
	Lock = "lock.json" // npm's package-lock.json, or of PyPI's the files, with the digests that the index names
	Done = "done"      // is there if the tool has ended well
)

const (
	memory = 2 << 30
	tasks  = 512
)

// Job is one run of npm or pip. Without a version of the package it only asks for the newest one (Newest).
type Job struct {
	Package source.Package
	Session string // handle of its process
	Stage   string // folder on the host in which it leaves the package; nothing is in there yet
}

// Plan returns the plan of a job: a sandbox that reaches only the registries, and writes to one folder. The sandbox has
// that folder at the path where the package will be, because the scripts of a virtual environment name the path of
// their interpreter.
func (r Reader) Plan(j Job) (plan.Plan, error) {
	s, err := r.Read(j.Package.Kind)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("reading the settings of %s: %w", tool(j.Package.Kind), err)
	}
	if r.Host.Packages == "" {
		return plan.Plan{}, errors.New("no directory for packages")
	}
	program, ok := r.find(map[source.Kind]string{source.NPM: "npm", source.PyPI: "python3"}[j.Package.Kind])
	if !ok {
		return plan.Plan{}, map[source.Kind]error{
			source.NPM:  errors.New("npm is not installed; install it (apt install npm)"),
			source.PyPI: errors.New("python3 is not installed; install it with pip (apt install python3-pip python3-venv)"),
		}[j.Package.Kind]
	}
	place, _ := hostfs.Resolve(r.Host.FS, r.Host.Folder(j.Package))
	stage, err := hostfs.Resolve(r.Host.FS, j.Stage)
	if err != nil {
		return plan.Plan{}, err
	}
	authorities, err := r.authorities(&s)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := r.sandbox(s, program.Written)
	if err != nil {
		return plan.Plan{}, err
	}
	p.Name, p.Gateway = Server, handover.Server{Name: Server, Session: j.Session}
	box := &p.Sandbox
	box.Once, box.Command, box.Args = true, "/bin/sh", r.command(j.Package, s, program.Written, place.Real)
	at := slices.IndexFunc(box.Mounts, func(m sandbox.Mount) bool { return m.Kind == sandbox.Remount })
	own := []sandbox.Mount{{
		Kind: sandbox.Bind, Source: stage.Real, Dest: place.Real, State: true, Why: "where the package is put",
	}}
	shown := func(m sandbox.Mount) bool { return m.ReadOnly() && sandbox.Below(authorities, m.Dest) }
	if authorities != "" && !slices.ContainsFunc(box.Mounts, shown) {
		const why = "the certificates that the registry is known by"
		own = append(own, sandbox.Mount{Kind: sandbox.ROOverlay, Source: authorities, Dest: authorities, Why: why})
	}
	box.Mounts = slices.Insert(box.Mounts, at, own...)
	box.Env = append(box.Env, sandbox.Env{Name: "PIP_CONFIG_FILE", Value: "/dev/null"})
	return p, box.Validate()
}

// authorities resolves the file of certificates, and puts its real path into the settings.
func (r Reader) authorities(s *Settings) (string, error) {
	if s.CA == "" {
		return "", nil
	}
	f, err := hostfs.Resolve(r.Host.FS, s.CA)
	if err == nil && !f.Regular() {
		err = fmt.Errorf("%q is not a file", s.CA)
	}
	if err != nil {
		return "", fmt.Errorf("looking for the certificates of the registry: %w", err)
	}
	s.CA = f.Real
	return f.Real, nil
}

// sandbox returns the plan of a server that needs only the tool and the registries.
func (r Reader) sandbox(s Settings, program string) (plan.Plan, error) {
	d := declaration.Server{
		Name: "install", File: "pfar install", Label: declaration.Public, Transport: declaration.Stdio,
		Program: declaration.Program{Command: program}, Enabled: true, Calls: declaration.Calls{Timeout: time.Minute},
		Pins:    declaration.TrustFirst,
		Sandbox: declaration.Sandbox{Memory: memory, Tasks: tasks, ReadOnlyFS: true, AllowTmp: true},
	}
	d.Allowed, d.Private = s.reach()
	p, diags := generator.Compile(d, r.Host)
	for _, g := range diags {
		if g.Severity == hcl.DiagError {
			return plan.Plan{}, fmt.Errorf("%s: %s", g.Summary, g.Detail)
		}
	}
	p.Files, p.Setting, p.Undo = nil, "", nil
	return p, nil
}

// The scripts end at the first command that fails. $1 is the package's folder, and the rest the command that installs.
const (
	begin = `set -e; cd "$1"; mkdir scratch; TMPDIR=$1/scratch; export TMPDIR; `
	end   = `rm -rf scratch; : > done`

	npmScript = begin + `mkdir tree; shift; "$@"; mv tree/package-lock.json lock.json; ` + end
	npmNewest = begin + `shift; "$@" > lock.json; ` + end
	pipNewest = begin + `"$2" -m venv --without-pip tree; shift; "$@"; ` + end

	// $2 is python3, $3 index.py, $4 and $5 its arguments, and $6 the package. The rest is pip, without a command.
	pipScript = begin + `python=$2 code=$3 index=$4 ca=$5 wanted=$6; shift 6; "$python" -m venv --without-pip tree; ` +
		`"$@" download --dest scratch/wheels --only-binary :all: --index-url "$index" ${ca:+--cert "$ca"} "$wanted"; ` +
		`"$python" -I -c "$code" "$index" "$ca"; ` +
		`"$@" install --no-index --find-links scratch/wheels --only-binary :all: --no-deps --require-hashes ` +
		`--no-warn-script-location --requirement scratch/requirements.txt; ` + end
)

// digestReader is the program that reads from the index which digest each file has.
//
//go:embed index.py
var digestReader string

// command returns the shell's arguments for a job.
func (r Reader) command(p source.Package, s Settings, program, place string) []string {
	if p.Kind == source.PyPI {
		pip := []string{
			program, "-m", "pip", "--python", path.Join(place, Tree, "bin/python"), "--isolated", "--no-input",
			"--disable-pip-version-check", "--no-cache-dir", "--quiet",
		}
		if p.Version != "" {
			wanted := p.Name + "==" + p.Version
			return append([]string{"-c", pipScript, "sh", place, program, digestReader, s.URL, s.CA, wanted}, pip...)
		}
		args := append([]string{"-c", pipNewest, "sh", place}, pip...)
		args = append(args, "install", "--only-binary", ":all:", "--report", path.Join(place, Lock), "--index-url", s.URL)
		if s.CA != "" {
			args = append(args, "--cert", s.CA)
		}
		return append(args, "--dry-run", "--no-deps", p.Name)
	}
	script, verb, words := npmScript, "install", []string{p.Name + "@" + p.Version}
	if p.Version == "" {
		script, verb, words = npmNewest, "view", []string{"--json", p.Name, "version"}
	}
	args := []string{
		"-c", script, "sh", place, program, verb, "--prefix", path.Join(place, Tree),
		"--cache", path.Join(place, "scratch"), "--userconfig", path.Join(place, "scratch/none"),
		"--globalconfig", path.Join(place, "scratch/no"), // neither is there, and npm wants two names
		"--registry", s.URL, "--ignore-scripts", "--package-lock", "--save-exact", "--omit=dev", "--strict-ssl",
		"--omit-lockfile-registry-resolved=false", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error",
		"--logs-max=0", "--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000",
	}
	if s.CA != "" {
		args = append(args, "--cafile", s.CA)
	}
	for _, scope := range slices.Sorted(maps.Keys(s.Scopes)) {
		args = append(args, "--"+scope+":registry="+s.Scopes[scope].URL)
	}
	return append(args, words...)
}

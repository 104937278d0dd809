package generator

import (
	"path"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/hostfs"
)

// files are what a changed program is told by: files of the host, and folders with all in them that is code. They are
// those of the program that the declaration names and of the package that it lies in; not the interpreter, and not what
// a runner fetches.
func (c facts) files(b *bounds) []string {
	if !c.server.Starts() {
		return nil
	}
	words := append([]string{path.Base(c.server.Command)}, c.server.Args...)
	if _, _, ok := source.RunnerOf(words); ok {
		return nil
	}
	command, err := c.host.resolve(c.commandPath())
	if err != nil {
		return nil
	}
	in, interpreted := interpreterOf(c.commandPath(), command.Real)
	if !interpreted {
		return c.filesOf(command, b)
	}
	if i := in.find(c.server.Args); i >= 0 {
		if f, err := c.host.resolve(c.server.Args[i]); err == nil && path.IsAbs(c.server.Args[i]) {
			return c.filesOf(f, b)
		}
		return nil
	}
	return c.installedPython(path.Dir(path.Dir(c.commandPath()))) // python -m
}

// filesOf are those of one program.
func (c facts) filesOf(f hostfs.File, b *bounds) []string {
	if dir := path.Dir(f.Real); path.Base(dir) == "bin" {
		if list := c.installedPython(path.Dir(dir)); list != nil {
			return append([]string{f.Real}, list...)
		}
	}
	// A compiled program may lie in the directory of a project that it does not belong to. Below node_modules it belongs
	// to the package.
	alone := strings.HasPrefix(c.host.head(f.Real), "\x7fELF") && !strings.Contains(f.Real, "/node_modules/")
	for dir := path.Dir(f.Real); !alone && !b.broad(dir) && path.Base(dir) != "node_modules"; dir = path.Dir(dir) {
		if c.host.exists(path.Join(dir, "package.json")) || c.host.exists(path.Join(dir, "pyproject.toml")) {
			return []string{dir}
		}
	}
	return []string{f.Real}
}

// installedPython is what a virtual environment has installed, as its lists of files have it with their digests.
func (c facts) installedPython(prefix string) []string {
	if !c.host.exists(path.Join(prefix, "pyvenv.cfg")) {
		return nil
	}
	var list []string
	for _, d := range c.distributions(c.host.real(prefix)) {
		list = append(list, path.Join(d.folder, "RECORD"))
	}
	return list
}

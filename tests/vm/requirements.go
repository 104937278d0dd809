package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// tools are the programs that the machine needs, and the Debian packages that have them.
var tools = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86",
	"debootstrap":        "debootstrap",
	"mke2fs":             "e2fsprogs",
	"dpkg-deb":           "dpkg",
}

// missing returns the packages whose programs are not here.
func missing() []string {
	var list []string
	for _, tool := range sortedNames(tools) {
		if _, err := exec.LookPath(tool); err != nil {
			list = append(list, tools[tool])
		}
	}
	return list
}

// Install brings the tools onto this machine, and says which it brought. It needs root and apt.
func Install(ctx context.Context) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("the virtual machine's image is made as root, and this is uid %d; without root run go test -short", os.Geteuid())
	}
	list := missing()
	if len(list) == 0 {
		return nil, nil
	}
	names := strings.Join(list, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("this machine lacks %s, and has no apt-get to install them; without them run go test -short", names)
	}
	if _, err := run(ctx, "/", "apt-get", "update", "-q"); err != nil {
		return nil, fmt.Errorf("installing %s: %w", names, err)
	}
	if _, err := run(ctx, "/", "apt-get", append([]string{"install", "-q", "-y", "--no-install-recommends"}, list...)...); err != nil {
		return nil, fmt.Errorf("installing %s: %w", names, err)
	}
	return list, nil
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

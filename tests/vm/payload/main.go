// Command payload runs in the virtual machine: it has pfar's limits hold programs that want more, and writes one JSON
// object per check.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	command, args := "suite", os.Args[1:]
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	commands := map[string]func([]string) error{
		"suite":     suite,
		"limits":    limits,
		"leave":     leave,
		"hog":       hog,
		"bomb":      bomb,
		"idle":      idle,
		"nproc":     nproc,
		"appliance": appliance,
		"again":     again,
		"elsewhere": elsewhere,
		"upgrade":   upgrade,
		"cut":       afterCut,
		"serve":     serve,
		"fetch":     fetch,
	}
	run, ok := commands[command]
	if !ok {
		fmt.Fprintf(os.Stderr, "payload: no command %q\n", command)
		os.Exit(2)
	}
	if err := run(args); err != nil {
		fmt.Fprintf(os.Stderr, "payload %s: %v\n", command, err)
		os.Exit(1)
	}
}

func number(args []string, i int) int {
	if i >= len(args) {
		return 0
	}
	n, err := strconv.Atoi(args[i])
	if err != nil {
		return 0
	}
	return n
}

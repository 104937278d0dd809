//go:build !amd64

package main

// machineAttacks is empty where the kernel has one system call interface only.
func machineAttacks() list { return nil }

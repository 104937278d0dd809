// Package services has one HCL file for each known service: package policies reads its facts, generator/catalog its
// set-up.
package services

import "embed"

// Files are named after their services.
//
//go:embed *.hcl
var Files embed.FS

package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/schema"
)

// versionCommand is the command version.
type versionCommand struct{ *tool }

func (t versionCommand) command() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this build and of the schema it needs",
		Description: `Example:
  holdfast version -o json`,
		Flags:  []cli.Flag{outputFlag()},
		Action: t.do(t.print),
	}
}

func (t versionCommand) print(_ context.Context, c *cli.Context) error {
	build := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		Schema  int64  `json:"schema"`
	}{version, runtime.Version(), schema.Latest()}
	return t.one(c, build, fmt.Sprintf("holdfast %s (%s, schema %d)", build.Version, build.Go, build.Schema))
}

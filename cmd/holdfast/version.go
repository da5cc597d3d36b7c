package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/schema"
)

func (t versionCommand) command() *cli.Command {
	return t.verb("version", "print the version of this build and of the schema it needs",
		`Example:
  holdfast version -o json`,
		plain(t.print), outputFlag())
}

func (t versionCommand) print(_ context.Context, c *cli.Context) error {
	build := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		Schema  int64  `json:"schema"`
	}{version, runtime.Version(), schema.Latest()}
	return line(t.tool, c, build, fmt.Sprintf("holdfast %s (%s, schema %d)", build.Version, build.Go, build.Schema))
}

// buildVersion returns the version that the linker set. Without one it returns the module version that the go command
// recorded: the release for `go install module/cmd/holdfast@latest`, and a pseudo-version for a build inside a Git
// clone. It returns "dev" if neither exists.
func buildVersion(linked string, read func() (*debug.BuildInfo, bool)) string {
	if linked != "" {
		return linked
	}
	if info, ok := read(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

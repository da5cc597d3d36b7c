package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/internal/search"
)

const helpWidth = 100 // columns

// helpTexts has the help texts that concern no single command.
var helpTexts = map[string]func(b *strings.Builder, program *cli.App){
	"flags": func(b *strings.Builder, program *cli.App) {
		b.WriteString("Every command has these flags. The environment variable in brackets sets the same value.\n")
		describeFlags(b, "Global flags", program.Flags)
	},
	"search": func(b *strings.Builder, _ *cli.App) {
		b.WriteString(`A search is a list of terms between spaces. A task matches if it matches all of them.

Example:
  holdfast task list -q 'state:dead,ready type:http error:"connection refused" since:2h'

A term is a field, a colon and a value. Without a field, the value is a part of the last error. A value with
spaces is in double quotes; write \" for a quote in it, and \\ for a backslash. Each field may appear once, except
tag and payload.

A path has the keys of objects and the indexes of arrays between dots. A key with characters other than letters,
digits, _, - and $ is in double quotes. A value in quotes matches a string; without quotes it also matches a number,
true, false or null.

Lists of dead tasks, and lists by id, unique key, tag or group are fast. Other lists scan the tasks. A scan stops after
a second, and the command prints where to continue.

Fields:
`)
		for _, f := range search.Fields() {
			describe(b, 16, f.Name, f.Meaning)
		}
	},
}

// help prints the help of a command, a noun or the program.
func help(out io.Writer, program *cli.App, line commandLine) error {
	var b strings.Builder
	if write := helpTexts[line.text]; write != nil {
		write(&b, program)
		_, err := io.WriteString(out, b.String())
		return err
	}
	path := line.path
	usage, text, flags, commands, arguments := program.Usage, program.Description, []cli.Flag(nil), program.Commands, ""
	if len(path) > 0 {
		last := path[len(path)-1]
		usage, text, flags, commands, arguments = last.Usage, last.Description, last.Flags, last.Subcommands, last.ArgsUsage
	}
	fmt.Fprintf(&b, "%s - %s\n\nUsage:\n  %s", line.name(), usage, line.name())
	if len(commands) > 0 {
		b.WriteString(" <command>")
	}
	b.WriteString(" [flags]")
	if arguments != "" {
		b.WriteString(" " + arguments)
	}
	b.WriteString("\n")
	if text != "" {
		b.WriteString("\n" + text + "\n")
	}
	if len(commands) > 0 {
		b.WriteString("\nCommands:\n")
		for _, command := range commands {
			if !command.Hidden {
				describe(&b, 16, command.Name, command.Usage)
			}
		}
		fmt.Fprintf(&b, "\nFor the help of a command: %s <command> --help\n", line.name())
	}
	describeFlags(&b, "Flags", flags)
	b.WriteString("\nGlobal flags, such as --config, --database-url and --set: holdfast help flags\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func describeFlags(b *strings.Builder, title string, flags []cli.Flag) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, flag := range flags {
		name := "--" + flag.Names()[0]
		if len(flag.Names()) > 1 {
			name = "-" + flag.Names()[1] + ", " + name
		}
		placeholder, doc := describeFlag(flag)
		if placeholder != "" {
			name += " " + placeholder
		}
		describe(b, 24, name, doc)
	}
}

// describeFlag returns the placeholder and the description of a flag. For flags of the library the placeholder is the text
// in backquotes.
func describeFlag(flag cli.Flag) (placeholder, doc string) {
	if s, ok := flag.(settingFlag); ok {
		return s.placeholder, s.doc
	}
	documented, ok := flag.(cli.DocGenerationFlag)
	if !ok {
		return "", ""
	}
	doc = documented.GetUsage()
	if before, rest, ok := strings.Cut(doc, "`"); ok {
		if word, after, ok := strings.Cut(rest, "`"); ok {
			return word, before + word + after
		}
	}
	if takesValue(flag) {
		return "VALUE", doc
	}
	return "", doc
}

// describe writes a name, and its text in a column to the right.
func describe(b *strings.Builder, width int, name, text string) {
	fmt.Fprintf(b, "  %-*s", width, name)
	if len(name) > width {
		fmt.Fprintf(b, "\n  %*s", width, "")
	}
	column := 0
	for i, word := range strings.Fields(text) {
		if i > 0 && column+1+len(word) > helpWidth-width-4 {
			fmt.Fprintf(b, "\n  %*s", width, "")
			column = 0
		}
		b.WriteString(" " + word)
		column += 1 + len(word)
	}
	b.WriteString("\n")
}

// Package statement reads the statements of an adapter from its .sql files.
package statement

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strings"
)

// parts is the file with the parts of statements. A line "-- {{name}}" begins the part with that name, which stands for
// {{name}} in statements and in other parts.
const parts = "parts"

var (
	heading  = regexp.MustCompile(`(?m)^-- \{\{(\w+)\}\}.*$`)
	included = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// Variant is a statement that differs from another one in one part.
type Variant struct {
	Name string
	Of   string // the other statement
	Part string // the name of the part there,
	Is   string // and of the part that takes its place
}

// Load returns the statements of the folder sql, by the names of their files without ".sql" and without comments and
// indentation, and the variants. given are more parts. It panics if a file cannot be used, because that is a mistake of the build.
func Load(files fs.FS, given map[string]string, variants ...Variant) map[string]string {
	entries, err := fs.ReadDir(files, "sql")
	if err != nil {
		panic(err)
	}
	texts := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := fs.ReadFile(files, path.Join("sql", entry.Name()))
		if err != nil {
			panic(err)
		}
		texts[strings.TrimSuffix(entry.Name(), ".sql")] = string(text)
	}
	whole := split(texts[parts])
	maps.Copy(whole, given)
	delete(texts, parts)
	for _, v := range variants {
		texts[v.Name] = strings.ReplaceAll(Text(texts, v.Of), "{{"+v.Part+"}}", "{{"+v.Is+"}}")
	}
	for name, text := range texts {
		texts[name] = fill(whole, Compact(text))
	}
	return texts
}

// split returns the parts by their names.
func split(text string) map[string]string {
	named := make(map[string]string)
	at := heading.FindAllStringSubmatchIndex(text, -1)
	for i, match := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		named[text[match[2]:match[3]]] = Compact(text[match[1]:end])
	}
	return named
}

// fill puts in the parts, and the parts of parts.
func fill(whole map[string]string, text string) string {
	return included.ReplaceAllStringFunc(text, func(match string) string {
		rest := maps.Clone(whole)
		delete(rest, strings.Trim(match, "{}")) // no part is inside itself
		return fill(rest, Text(whole, strings.Trim(match, "{}")))
	})
}

// Text returns the text with a name. It panics if there is none.
func Text(texts map[string]string, name string) string {
	text, ok := texts[name]
	if !ok {
		panic(fmt.Sprintf("sql/ has no %s", name))
	}
	return text
}

// Compact drops comments and indentation, because a text may travel with every call.
func Compact(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

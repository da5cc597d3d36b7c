package sqlite

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strings"
)

//go:embed sql/*.sql
var files embed.FS

// statements reads the embedded files. {{name}} in one of them stands for the text of another.
// A file that cannot be used is a mistake of the build.
func statements() map[string]string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err)
	}
	texts := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := files.ReadFile(path.Join("sql", entry.Name()))
		if err != nil {
			panic(err)
		}
		texts[strings.TrimSuffix(entry.Name(), ".sql")] = compact(string(text))
	}
	included := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for name, content := range texts {
		texts[name] = included.ReplaceAllStringFunc(content, func(match string) string {
			return text(texts, strings.Trim(match, "{}"))
		})
	}
	return texts
}

// compact drops comments and indentation.
func compact(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// text returns the statement of sql/<name>.sql.
func text(texts map[string]string, name string) string {
	text, ok := texts[name]
	if !ok {
		panic(fmt.Sprintf("sqlite: there is no sql/%s.sql", name))
	}
	return text
}

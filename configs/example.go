package configs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Example returns a YAML file that holds every key with its default and what it
// means. The file holdfast.example.yaml is its output.
func Example() string {
	var out strings.Builder
	out.WriteString(exampleHead)
	c := Default()
	var open []string // the sections the last key stood in
	for _, s := range c.settings() {
		path := strings.Split(s.key, ".")
		sections, name := path[:len(path)-1], path[len(path)-1]
		same := 0
		for same < min(len(open), len(sections)) && open[same] == sections[same] {
			same++
		}
		if same == 0 {
			out.WriteByte('\n')
			if s.key == "defaults.retry.strategy" {
				out.WriteString(exampleDefaults)
			}
		}
		for i := same; i < len(sections); i++ {
			fmt.Fprintf(&out, "%s%s:\n", indent(i), sections[i])
		}
		open = sections
		for _, line := range wrap(s.doc, 90) {
			fmt.Fprintf(&out, "%s# %s\n", indent(len(sections)), line)
		}
		fmt.Fprintf(&out, "%s%s: %s\n", indent(len(sections)), name, yamlText(s.value))
		if s.key == "webhook.retry_statuses" {
			out.WriteString(exampleSecrets)
		}
	}
	out.WriteString(exampleTypes)
	return out.String()
}

const exampleHead = `# Every key of holdfast's configuration with its default. Delete what you do not change.
#
# Flags win over the environment, which wins over this file. The variable of a key is
# HOLDFAST_ and the key in upper case with _ for the dots: HOLDFAST_WORKER_CONCURRENCY=10.
# Lists are separated with commas there. DATABASE_URL and AMQP_URL are read as well.
# Durations are written like 250ms, 10s or 168h.
`

const exampleSecrets = `  # Signing keys by name; a payload chooses one with "secret_ref". Each is whsec_ and the
  # base64 of 24 to 64 bytes. A list signs with all of them while a receiver changes keys.
  # HOLDFAST_WEBHOOK_SECRETS_BILLING holds the key billing, and
  # HOLDFAST_WEBHOOK_SECRETS_BILLING_FILE names a file with it.
  secrets: {}
  # The hosts that each secret may sign requests to. Holdfast refuses a payload for another host. A secret
  # needs at least one host: api.example.com allows any port, api.example.com:8443 that port only, and
  # *.example.com every name that ends in .example.com. HOLDFAST_WEBHOOK_SECRET_HOSTS_BILLING lists the hosts of
  # billing, separated with commas. A process that only enqueues needs no keys; with the hosts it checks payloads.
  #
  #   secret_hosts:
  #     billing: [api.example.com, "*.eu.example.com"]
  secret_hosts: {}
`

const exampleDefaults = `# What holds for the tasks of every type.
`

const exampleTypes = `
# What differs for the tasks of one type. What is not set here is that of defaults.
# HOLDFAST_TYPES_HTTP_RETRY_BASE is the variable for retry.base of the type http.
#
#   types:
#     http:
#       lane: webhooks
#       max_attempts: 15
#       retry: {base: 5s, max: 6h}
#     report.monthly:
#       timeout: 2h
#       retry: {strategy: list, delays: [1m, 10m, 1h]}
types: {}
`

func indent(depth int) string { return strings.Repeat("  ", depth) }

// wrap breaks text at spaces into lines of at most width bytes.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

var plainYAML = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

func yamlText(v value) string {
	quote := func(s string) string {
		if plainYAML.MatchString(s) {
			return s
		}
		return strconv.Quote(s)
	}
	if _, isList := v.(interface{ list() }); !isList {
		return quote(v.text())
	}
	items := fields(v.text())
	for i, item := range items {
		items[i] = quote(item)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

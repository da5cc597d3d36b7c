package queue

import "github.com/holdfastq/holdfast/app"

// Backend returns what a client runs on.
func Backend(c *Client) *app.Backend { return c.backend }

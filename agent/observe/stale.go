package observe

// Stale says that a container changed without its state changing: it is asked for again.
func (o *Observer) Stale(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.containers, id)
}

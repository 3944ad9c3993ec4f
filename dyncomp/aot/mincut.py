"""Minimum cut of a flow network by Dinic's algorithm.

net = Network(4)                     0 --3--> 1 --1--> 3          cut of value 2:
net.edge(0, 1, 3); ...               0 --1--> 2 --5--> 3    ->    source side {0, 1}
"""

from __future__ import annotations

INFINITE = float("inf")


class Network:
    """Nodes are numbers; edges carry a capacity."""

    def __init__(self, nodes: int):
        self.out: list[list[int]] = [[] for _ in range(nodes)]  # numbers of the edges that leave a node
        self.target: list[int] = []
        self.capacity: list[float] = []  # what is left; edge e ^ 1 is the reverse of edge e

    def edge(self, source: int, target: int, capacity: float) -> None:
        for start, end, amount in ((source, target, capacity), (target, source, 0.0)):
            self.out[start].append(len(self.target))
            self.target.append(end)
            self.capacity.append(amount)

    def source_side(self, source: int, sink: int) -> list[bool] | None:
        """Which nodes lie on the source's side of a minimum cut; None if every cut is infinite."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return [depth >= 0 for depth in level]
            if not self._augment(source, sink, level):
                return None

    def _levels(self, source: int) -> list[int]:
        """Breadth-first distance over edges with capacity left; -1 where there is no way."""
        level = [-1] * len(self.out)
        level[source] = 0
        queue = [source]
        for node in queue:
            for edge in self.out[node]:
                target = self.target[edge]
                if self.capacity[edge] > 0 and level[target] < 0:
                    level[target] = level[node] + 1
                    queue.append(target)
        return level

    def _augment(self, source: int, sink: int, level: list[int]) -> bool:
        """Sends flow along shortest paths until they are blocked; False if a path has no limit."""
        cursor = [0] * len(self.out)
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(self.capacity[edge] for edge in path)
                if amount == INFINITE:
                    return False
                node = self._send(path, amount, source)
                continue
            edge = self._next_edge(node, level, cursor)
            if edge is not None:
                path.append(edge)
                node = self.target[edge]
            elif path:
                back = path.pop()
                node = self.target[back ^ 1]
                cursor[node] += 1
            else:
                return True

    def _send(self, path: list[int], amount: float, source: int) -> int:
        """Updates the capacities and cuts the path back to before its first full edge; the node there."""
        full = len(path)
        for position in range(len(path) - 1, -1, -1):
            edge = path[position]
            self.capacity[edge] -= amount
            self.capacity[edge ^ 1] += amount
            if self.capacity[edge] <= 0:
                full = position
        del path[full:]
        return self.target[path[-1]] if path else source

    def _next_edge(self, node: int, level: list[int], cursor: list[int]) -> int | None:
        edges = self.out[node]
        while cursor[node] < len(edges):
            edge = edges[cursor[node]]
            if self.capacity[edge] > 0 and level[self.target[edge]] == level[node] + 1:
                return edge
            cursor[node] += 1
        return None
